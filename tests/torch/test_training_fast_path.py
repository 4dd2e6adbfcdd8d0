"""A training step that was made before is C's alone: forward passes and gradients of products and convolutions."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tilewright.runtime import calls  # noqa: E402


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops of the calls that C left to Python."""
    seen: list[str] = []
    run_slow = calls.Caller.run_slow

    def counted(caller: Any, *given: Any) -> Any:
        seen.append(caller.binding.op)
        return run_slow(caller, *given)

    monkeypatch.setattr(calls.Caller, "run_slow", counted)
    return seen


def test_gradients_of_a_second_step(slow_calls: list[str]) -> None:
    x = torch.randn(2, 8, 6, 6, requires_grad=True)
    w, v = torch.randn(8, 8, 3, 3, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def step() -> None:
        y = tw.conv(x, w, padding=1, layout="nchw", epilogue="relu")
        tw.gemm(y.permute(0, 2, 3, 1).reshape(-1, 8), v.T).square().sum().backward()

    step()
    slow_calls.clear()
    step()
    assert slow_calls == []


def test_shapes_that_are_no_plain_tuples(slow_calls: list[str]) -> None:
    x, w, dy = torch.randn(1, 5, 5, 4), torch.randn(4, 3, 3, 4), torch.randn(1, 3, 3, 4)
    expected = tw.conv_backward_data(dy, w, tuple(x.shape))
    slow_calls.clear()
    for shape in (x.shape, list(x.shape)):
        assert torch.equal(tw.conv_backward_data(dy, w, shape), expected)
        tw.conv_backward_weight(x, dy, w.shape)
    assert slow_calls == ["conv"]  # the first weight gradient
