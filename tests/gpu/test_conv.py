"""Convolutions of every pipeline, direction and number of dimensions against float64, on problems drawn by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.conv_questions import Question
from tests.gpu.torch_here import torch
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem, ConvSignature
from tilewright.ops.conv.options import channels_first
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.spec import accumulator

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
        floor = CONV.generic_spec(self.signature, arch)
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
    return one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})


CASES = [
    *(Case(variant, spatial) for variant in VARIANTS for spatial in (2, 3)),
    *(Case(variant, 2, "fp16") for variant in VARIANTS),
    Case("forward", 2, "int8"),
    *(Case(variant, 2, "fp32") for variant in VARIANTS),
    Case("forward", 2, "bf16", "Relu", 1),
    Case("forward", 3, "bf16", "Gelu", 2),
]


def asked(case: Case, specs: list[KernelSpec]) -> dict[ConvProblem, list[KernelSpec]]:
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_pipeline(case: Case, arch: str) -> None:
    found, ran = [], set()
    specs = case.specs(arch)
    kernels.build(specs)  # side by side
    for number, (problem, of_problem) in enumerate(asked(case, specs).items()):
        question = Question(problem, number)
        for spec in of_problem:
            ran.add(spec.schedule.pipeline)
            text = question.answer(kernels.kernel(spec))
            if text:
                found.append(f"{spec.name} {problem.describe()}: {text}")
    assert found == []
    assert {spec.schedule.pipeline for spec in specs} <= ran
    assert "loops" in ran
    assert ("pointwise_multistage" if case.dtype == "fp32" else "pointwise_tma_ws") in ran
    assert "gather" in ran
    assert "gather_planes" in ran
    assert case.dtype == "fp32" or "tma_ws" in ran


LAYOUTS, GROUPS = ("channels_last", "channels_first"), (1, 4, 32)
BROADCAST = ((1, 96, 1, 1), (1, 1, 1, 1), (3, 1, 1, 1), (3, 96, 1, 1), (1, 96, 13, 1), (3, 96, 13, 1))


class Calls:
    """Calls of the public functions on memory of one order, each with what it should give."""

    def __init__(self, layout: str, groups: int) -> None:
        self._memory = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self._how: Any = {"padding": (1, 0), "groups": groups, "layout": "nchw"}
        x, w = self._random((3, 64, 13, 1)), self._random((96, 64 // groups, 3, 1))
        x64, w64 = (one.double().requires_grad_() for one in (x, w))
        exact = torch.nn.functional.conv2d(x64, w64, padding=(1, 0), groups=groups)
        y = self._random(tuple(exact.shape))
        exact.backward(y.double())
        self.all = [(partial(tw.conv, x, w, **self._how), exact.detach())]
        for d in map(self._random, BROADCAST):
            self.all.append((partial(tw.conv, x, w, ds=(d,), **self._how), exact.detach() + d.double()))
        self.all.append((partial(tw.conv_backward_data, y, w, tuple(x.shape), **self._how), x64.grad))
        self.all.append((partial(tw.conv_backward_weight, x, y, tuple(w.shape), **self._how), w64.grad))

    def _random(self, shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, device="cuda").bfloat16().to(memory_format=self._memory)


@pytest.fixture(scope="module")
def compiled() -> None:
    """The kernels that these calls choose, built side by side: what goes wrong here is said by the test it is of."""
    calls = [call for one in product(LAYOUTS, GROUPS) for call, _ in Calls(*one).all]

    def run(call: Any) -> None:
        with suppress(TilewrightError):
            call()

    with ThreadPoolExecutor(len(calls)) as threads:
        list(threads.map(run, calls))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.usefixtures("compiled")
def test_calls_on_memory_of_either_order(layout: str, groups: int) -> None:
    """Through the public functions: D tensors of any shape that broadcasts, and all directions."""
    for call, exact in Calls(layout, groups).all:
        assert close(call(), exact), call


@pytest.mark.parametrize(("channels", "filters", "groups"), [(128, 128, 32), (128, 128, 128), (192, 384, 16)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_groups_of_few_channels_in_memory_that_is_channels_first(
    dtype: Any, channels: int, filters: int, groups: int
) -> None:
    """Every direction, bias and Relu, strides, and operands that begin an element after 16 bytes."""
    for stride, off in ((1, 0), (2, 0), (1, 1)):
        made = partial(random_values, dtype, off)
        how: Any = {"stride": stride, "padding": 1, "groups": groups, "layout": "nchw"}
        x, w = made(3, channels, 14, 13), made(filters, channels // groups, 3, 3)
        bias = made(filters)
        x64, w64 = (one.double().requires_grad_() for one in (x, w))
        exact = torch.nn.functional.conv2d(x64, w64, stride=stride, padding=1, groups=groups)
        y = made(*exact.shape)
        exact.backward(y.double())
        positive = (exact.detach() + bias.double()[:, None, None]).relu()
        assert close(tw.conv(x, w, **how), exact.detach())
        assert close(tw.conv(x, w, bias, epilogue="Relu", **how), positive)
        assert close(tw.conv_backward_data(y, w, tuple(x.shape), **how), x64.grad)
        assert close(tw.conv_backward_weight(x, y, tuple(w.shape), **how), w64.grad)


def random_values(dtype: Any, off: int, *shape: int) -> Any:
    return torch.randn(prod(shape) + off, device="cuda").to(dtype)[off:].view(shape)


def close(found: Any, exact: Any) -> bool:
    return bool((found.double() - exact).abs().max() <= 2.0**-7 * exact.abs().max())
