"""What selection gives problems drawn by seed on AMD GPUs: python -m tests.amd_emulated.choices SEED COUNT [options].

Nothing is compiled.  COUNT problems of every op and arch, with types and features as the drawings of kernels have them;
each that goes to a kernel without matrix instructions is listed, with the reason (`reason`), or as one that has none.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from tests.amd_emulated.attention import drawing as attention
from tests.amd_emulated.attention_backward import drawing as backward
from tests.amd_emulated.conv import drawing as conv
from tests.amd_emulated.gemm import drawing as gemm
from tilewright.arch import all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention.tiled import shape as attention_shape
from tilewright.backends.hip.gemm.tiled import shape as gemm_shape
from tilewright.backends.hip.matrix import multiplies
from tilewright.dispatch.registry import Registry
from tilewright.errors import NoKernelError, ProblemError, RequestError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

OPS = ("gemm", "conv", "attention", "attention_backward")
HIP = tuple(name for name, arch in all_archs().items() if arch.backend == "hip")
WITHOUT = ("loops", "fma")  # pipelines that multiply without matrix instructions
AMONG = 6  # problems of a kernel, of which one is taken
LARGE = 256  # heads beyond which fp32 has no room for lines in 64 KiB of LDS, or in gfx908's registers
SMALL_LDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Choice:
    """A stage of a problem, and the kernel it goes to; none where the problem is refused."""

    op: str
    arch: str
    problem: Any
    spec: KernelSpec | None

    @property
    def multiplied(self) -> bool:
        return self.spec is not None and self.spec.schedule.pipeline not in WITHOUT


@cache
def _registry(arch: str) -> Registry:
    return Registry(arch)


def drawn(name: str, arch: str, seed: str) -> Any:
    """A problem as a user has it, of a kernel of the default pool that need not serve it."""
    rng = random.Random(seed)
    while True:
        try:
            proposed = list(op(name).proposals("default", arch, **_axes(name, rng, arch)))
        except RequestError:
            continue  # of another arch
        if proposed and (attempts := list(islice(_attempts(name, rng, rng.choice(proposed)), AMONG))):
            return rng.choice(attempts)


def _axes(name: str, rng: random.Random, arch: str) -> dict[str, Any]:
    if name in ("gemm", "conv"):
        return gemm.draw_axes(rng) if name == "gemm" else conv.draw_axes(rng)
    signature: Any = attention.draw_signature(rng, arch) if name == "attention" else backward.draw_signature(rng)
    return op(name).axes_of(signature)


def _attempts(name: str, rng: random.Random, spec: KernelSpec) -> Iterator[Any]:
    if name == "gemm":
        return (gemm.product_problem(spec, one) for one in gemm.attempts(rng, spec))
    if name == "conv":
        return (conv.product_problem(spec, one) for one in conv.attempts(rng, spec))
    if name == "attention":
        return (one.problem for one in attention.attempts(rng, spec))
    # The whole of which a kernel has a stage: how the others are added up is the plan's choice.
    return (replace(one.problem, family="", accumulate="none") for one in backward.attempts(rng, spec))


def choices(seed: int, count: int, ops: tuple[str, ...] = OPS, archs: tuple[str, ...] = HIP) -> Iterator[Choice]:
    """What `count` problems of each op and arch go to, stage by stage."""
    for name in ops:
        for arch in archs:
            for index in range(count):
                problem = drawn(name, arch, f"choices {seed} {name} {arch} {index}")
                try:
                    chosen = _registry(arch).select(problem)
                except (NoKernelError, ProblemError):  # the latter where a rule of the arch says no to any kernel
                    yield Choice(name, arch, problem, None)
                    continue
                yield from (Choice(name, arch, problem, stage.spec) for stage in chosen.stages)


def reason(choice: Choice) -> str:
    """Why a stage goes to no matrix kernel; empty where nothing says so."""
    assert choice.spec is not None
    s, arch = choice.spec.signature, arch_by_name(choice.arch)
    if choice.op == "gemm":
        return "" if gemm_shape.multiplied(s, arch) else "no matrix instruction for the types"
    if choice.op == "conv":
        return "" if multiplies(s.dtype, arch) else "no matrix instruction for the type"
    if s.family in ("append", "combine"):
        return "nothing is multiplied"
    if choice.op == "attention":
        found = attention_shape.multiplied(s, arch)
        if found is None:
            return "no matrix instruction for the type"
        large = found == "fp32" and max(s.head_dim, s.head_dim_v) > LARGE and arch.scratch_bytes <= SMALL_LDS
        return "LDS has no room for heads of fp32 as large" if large else ""
    if not multiplies(s.dtype, arch):
        return "no matrix instruction for the type"
    if choice.problem.deterministic and (s.dbias or s.dalibi):
        return "the order counts in which gradients of what is added come together"
    large = s.dtype == "fp32" and max(s.head_dim, s.head_dim_v) > LARGE and choice.arch == "gfx908"
    return "no registers for heads of fp32 as large" if large else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="What drawn problems go to on AMD GPUs.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, help="problems of each op and arch")
    parser.add_argument("--op", action="append", choices=OPS)
    parser.add_argument("--arch", action="append", choices=HIP)
    given = parser.parse_args()
    pipelines: Counter[tuple[str, str]] = Counter()
    left: Counter[tuple[str, str, str]] = Counter()
    for one in choices(given.seed, given.count, tuple(given.op or OPS), tuple(given.arch or HIP)):
        if one.spec is None:
            pipelines[one.op, "refused"] += 1
            continue
        pipelines[one.op, one.spec.schedule.pipeline] += 1
        if not one.multiplied:
            left[one.op, one.arch, reason(one) or "NO REASON"] += 1
            if not reason(one):
                print(f"{one.arch} {one.problem.describe()}: {one.spec.name}")
    for key, number in (*sorted(pipelines.items()), *sorted(left.items())):
        print(f"{number:5} {' '.join(key)}")


if __name__ == "__main__":
    main()
