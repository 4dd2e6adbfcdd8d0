"""A kernel set of one's own: declared as specs, built in parallel, then chosen from.

A registry with specs uses those and no others.  What the store already has is not compiled again,
so the second run of this program builds nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

import tilewright as tw


def declare() -> tw.Registry:
    registry = tw.Registry()  # the best target of this machine; Registry("x86_64_v3") names one
    registry.add_pool("gemm", "tiny", datatypes=("fp32",), layouts=("rrr", "rcr"))
    # A spec by hand: what is computed, how, and for which arch.  Here a neighbour of a proposed one.
    known = next(spec for spec in registry.specs() if spec.schedule.pipeline == "packed")
    schedule = replace(known.schedule, unroll=known.schedule.unroll * 2)
    registry.add(replace(known, schedule=schedule))
    return registry


def illegal_specs_are_refused(registry: tw.Registry) -> None:
    known = registry.specs()[0]
    try:
        registry.add(replace(known, schedule=replace(known.schedule, split_k=1000)))
    except tw.errors.IllegalSpecError as error:
        print(f"refused, as it should be: {error.rule}")
    else:
        raise AssertionError("an illegal spec was accepted")


def main() -> None:
    registry = declare()
    print(f"declared {len(registry)} kernels for {registry.target}:")
    for spec in registry.specs():
        print(f"  {spec.name}")
    illegal_specs_are_refused(registry)

    compiled = []
    with tw.events.recorded() as heard:
        start = time.perf_counter()
        built = registry.build(max_workers=2, progress=lambda done, total: print(f"  built {done} of {total}"))
        seconds = time.perf_counter() - start
        compiled = [one for one in heard if isinstance(one, tw.events.KernelBuilt) and not one.cached]
    print(f"{len(built)} libraries in {seconds:.1f} s, {len(compiled)} of them compiled just now")

    generator = np.random.default_rng(1)
    a = generator.standard_normal((64, 96), dtype=np.float32)
    b = generator.standard_normal((96, 128), dtype=np.float32)
    exact = a.astype(np.float64) @ b
    chosen = registry.select(tw.GemmProblem(m=64, n=128, k=96))
    print(f"chosen of them for 64x128x96: {chosen.name}")
    assert np.abs(registry.run("gemm", a, b) - exact).max() < 1e-3

    # Every kernel can be called by itself, with no choice made.
    for kernel in registry.kernels():
        if kernel.spec.signature.layout == "rrr":
            assert np.abs(kernel(a, b) - exact).max() < 1e-3
            print(f"right: {kernel.name}")


if __name__ == "__main__":
    main()
