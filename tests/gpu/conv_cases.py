"""Convolutions the GPU suite asks its kernels: cases, and problems drawn by seed that each kernel serves.

Nothing here needs PyTorch or a GPU: tests/conv/test_gpu_suite.py looks at it anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from tilewright import ops
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem, ConvSignature
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.spec import accumulator
from tilewright.runtime.bindings.conv.operands import plain_strides

CONV = ops.op("conv")
VARIANTS = ("forward", "backward_data", "backward_weight")
SEED, COUNT, EACH = 1115, 60, 3  # problems drawn for all kernels of a signature, and how many a kernel is asked
DRAWS = 2000  # problems more, of which those are kept that a kernel lacks
MOST, LARGEST = 1e9, 4e5  # operations of a problem, and numbers of a tensor: results are compared on the host


@dataclass(frozen=True)
class Case:
    variant: str
    spatial: int
    dtype: str = "bf16"
    epilogue: str = "PassThrough"
    num_d: int = 0

    @property
    def signature(self) -> ConvSignature:
        out = "int32" if self.dtype == "int8" else self.dtype
        return ConvSignature(
            self.variant, self.spatial, self.dtype, accumulator(self.dtype), out, out, self.epilogue, self.num_d
        )

    def specs(self, arch: str) -> list[KernelSpec]:
        """One in eight of the default pool, one of each pipeline, and of GEMM's kernels, which have tests, fewer."""
        axes = CONV.axes_of(self.signature)
        legal = [one for one in CONV.proposals("default", arch, **axes) if not CONV.check(one)]
        first = {one.schedule.pipeline: one for one in reversed(legal)}
        floor = CONV.fallback_spec(self.signature, arch)
        borrowed = [one for one in legal if one.schedule.pipeline.startswith(("pointwise", "planes"))]
        own = [one for one in legal if one not in borrowed]
        return list({one.digest: one for one in (*first.values(), *own[::8], *borrowed[::12], floor)}.values())

    def problems(self) -> Iterator[ConvProblem]:
        rng = random.Random(f"{SEED} {self}")
        while True:
            one = drawn(rng, self)
            if not problem_violations(one) and one.flops < MOST and largest(one) < LARGEST:
                yield one


def largest(problem: ConvProblem) -> int:
    return max(prod(one) for one in (problem.x_shape, problem.w_shape, problem.y_shape))


def drawn(rng: random.Random, case: Case) -> ConvProblem:
    plain = rng.random() < 0.4  # as networks have them: one window, stride and padding for all dimensions

    def each(*values: int) -> tuple[int, ...]:
        return (rng.choice(values),) * case.spatial if plain else tuple(rng.choice(values) for _ in range(case.spatial))

    kind = rng.choice(("dense", "dense", "grouped", "depthwise", "few", "pointwise"))
    groups = 1 if kind in ("dense", "few") else rng.choice((1, 1, 2) if kind == "pointwise" else (2, 4, 8, 32))
    channels, filters = (groups * rng.choice((8, 16, 32, 40, 64, 128)) for _ in range(2))
    if kind == "grouped" and plain:
        filters = channels
    if kind == "depthwise":
        groups = channels = filters = rng.choice((8, 21, 24, 136))
    if kind == "few":
        channels = rng.choice((1, 3, 4))
    first = rng.random() < 0.3
    if first:  # whatever lies side by side there, it is no channels
        channels, filters = channels + groups * rng.choice((0, 1)), filters + groups * rng.choice((0, 3))
    window = each(1, 3, 3, 5, 7) if rng.random() < 0.3 else (rng.choice((1, 3, 3, 5, 7)),) * case.spatial
    size = tuple(rng.choice((5, 9, 14, 23)) for _ in range(case.spatial))
    stride, dilation, before = each(1, 1, 1, 2), each(1, 1, 1 if plain else 2), each(0, 1, 2, 3)
    if kind == "pointwise":  # a matrix product of pixels
        channels, filters = (groups * rng.choice((8, 16, 21, 64, 128)) for _ in range(2))
        window, stride, before, plain = each(1), each(1), each(0), True
        size = tuple(rng.choice((1, 4, 5, 14, 23)) for _ in range(case.spatial))
    one = ConvProblem(
        rng.choice((1, 2, 5)), channels, filters, size, window, groups, stride, dilation, before,
        before if plain else each(0, 1, 2), case.variant, case.dtype, epilogue=case.epilogue, num_d=case.num_d,
        full_d=rng.randrange(case.num_d + 1),
    )  # fmt: skip
    if not first or problem_violations(one):
        return one
    shapes = {name: getattr(one, f"{name}_shape") for name in "xwy"}
    # As a call reads them from arrays: what strides say of a size of 1 counts for nothing.
    return one.laid(**{f"{name}_strides": plain_strides(at, channels_first(at)) for name, at in shapes.items()})


CASES = [
    *(Case(variant, spatial) for variant in VARIANTS for spatial in (2, 3)),
    *(Case(variant, 2, "fp16") for variant in VARIANTS),
    Case("forward", 2, "int8"),
    *(Case(variant, 2, "fp32") for variant in VARIANTS),
    Case("forward", 2, "bf16", "Relu", 1),
    Case("forward", 3, "bf16", "Gelu", 2),
]


def asked(case: Case, specs: Sequence[KernelSpec]) -> dict[ConvProblem, list[KernelSpec]]:
    """Problems, and the kernels that are asked each of them."""
    draws = case.problems()
    found: dict[ConvProblem, list[KernelSpec]] = {}
    problems = list(islice(draws, COUNT))
    serving = {spec: [one for one in problems if not CONV.supports(spec, one)] for spec in specs}
    for one in islice(draws, DRAWS):  # for kernels that few problems suit
        lacking = [spec for spec, some in serving.items() if len(some) < EACH]
        for spec in lacking:
            if not CONV.supports(spec, one):
                serving[spec].append(one)
    for spec, some in serving.items():
        some.sort(key=lambda one: max(one.stride) == 1)  # the fewer, and the harder
        for one in (*some[: EACH - 1], *some[EACH - 1 :][-1:]):
            found.setdefault(one, []).append(spec)
    return found
