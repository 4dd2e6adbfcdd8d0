"""Convolutions of every pipeline, direction and number of dimensions against float64, on problems drawn by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.conv_cases import CASES, Case, asked
from tests.gpu.conv_questions import Question
from tests.gpu.together import build_together
from tests.gpu.torch_here import torch
from tilewright.dispatch import kernels
from tilewright.ops.base import KernelSpec


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_pipeline(case: Case, specs: Sequence[KernelSpec]) -> None:
    found = []
    for number, (problem, of_problem) in enumerate(asked(case, specs).items()):
        question = Question(problem, number)
        for spec in of_problem:
            text = question.answer(kernels.kernel(spec))
            if text:
                found.append(f"{spec.name} {problem.describe()}: {text}")
    assert found == []


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
    build_together(call for case in product(LAYOUTS, GROUPS) for call, _ in Calls(*case).all)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.usefixtures("compiled")
def test_calls_on_memory_of_either_order(layout: str, groups: int) -> None:
    """Through the public functions: D tensors of any shape that broadcasts, and all directions."""
    for call, exact in Calls(layout, groups).all:
        assert close(call(), exact), call


FEW_CHANNELS = ((128, 128, 32), (128, 128, 128), (192, 384, 16))  # channels, filters, groups


def calls_of_few_channels(dtype: Any, channels: int, filters: int, groups: int) -> Iterator[tuple[Any, Any]]:
    """Every direction, bias and Relu, strides, and operands that begin an element after 16 bytes; what each gives."""
    for stride, off in ((1, 0), (2, 0), (1, 1)):
        values = partial(random_values, dtype, off)
        how: Any = {"stride": stride, "padding": 1, "groups": groups, "layout": "nchw"}
        x, w = values(3, channels, 14, 13), values(filters, channels // groups, 3, 3)
        bias = values(filters)
        x64, w64 = (tensor.double().requires_grad_() for tensor in (x, w))
        exact = torch.nn.functional.conv2d(x64, w64, stride=stride, padding=1, groups=groups)
        y = values(*exact.shape)
        exact.backward(y.double())
        yield partial(tw.conv, x, w, **how), exact.detach()
        yield partial(tw.conv, x, w, bias, epilogue="Relu", **how), (exact + bias.double()[:, None, None]).relu()
        yield partial(tw.conv_backward_data, y, w, tuple(x.shape), **how), x64.grad
        yield partial(tw.conv_backward_weight, x, y, tuple(w.shape), **how), w64.grad


@pytest.fixture(scope="module")
def compiled_for_few_channels() -> None:
    cases = product((torch.bfloat16, torch.float16), FEW_CHANNELS)
    build_together(call for dtype, sizes in cases for call, _ in calls_of_few_channels(dtype, *sizes))


@pytest.mark.parametrize("sizes", FEW_CHANNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("compiled_for_few_channels")
def test_groups_of_few_channels_in_memory_that_is_channels_first(dtype: Any, sizes: tuple[int, int, int]) -> None:
    for call, exact in calls_of_few_channels(dtype, *sizes):
        assert close(call(), exact.detach()), call


def random_values(dtype: Any, off: int, *shape: int) -> Any:
    return torch.randn(prod(shape) + off, device="cuda").to(dtype)[off:].view(shape)


def close(found: Any, exact: Any) -> bool:
    return bool((found.double() - exact).abs().max() <= 2.0**-7 * exact.abs().max())
