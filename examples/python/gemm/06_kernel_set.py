"""A kernel set of your own: declared as specs, built in parallel, every kernel validated, then selected from.

A registry with specs uses those and no others. What the store already has is not compiled again.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

given = options(__doc__, kernels=3)
proposed = tw.Registry().add_pool("gemm", "tests", datatypes=("fp32",), layouts=("rrr",)).specs()
registry = tw.Registry(specs=proposed[: given.kernels])  # or KernelSpecs of your own: signature, schedule, arch

# A spec that breaks a rule of its family is refused when it is added, before a compiler sees it.
try:
    registry.add(replace(proposed[0], schedule=replace(proposed[0].schedule, tile=(7, 7, 7))))
except tw.errors.IllegalSpecError as error:
    print(f"refused: [{error.rule}]")
else:
    sys.exit("an illegal tile was accepted")

with tw.events.recorded() as heard:
    start = time.perf_counter()
    registry.build(max_workers=2)
    seconds = time.perf_counter() - start
compiled = sum(isinstance(event, tw.events.KernelBuilt) and not event.cached for event in heard)
print(f"{len(registry)} kernels for {registry.target}: {compiled} compiled now, {seconds:.1f} s")

rng = np.random.default_rng(5)
a, b = normal(rng, 64, 96), normal(rng, 96, 128)
A, B = to_device(a, b)
exact = a.astype(np.float64) @ b
for kernel in registry.kernels():  # each by itself, without a selection
    check(kernel.spec.schedule.label()[:44], kernel(A, B), exact)

selection = registry.select(tw.GemmProblem(m=64, n=128, k=96))
check("the one that selection takes", registry.run("gemm", A, B), exact)
print(f"selected: {selection.name}")
