"""Eager calls that record a gradient, by the shortest way: what goes it, what does not, and that both are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright.api import tensors  # noqa: E402
from tilewright.torch import recorded  # noqa: E402

F = torch.nn.functional


def _tensor(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def _linear() -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    return [_tensor(2, 3, 8), _tensor(5, 8), _tensor(5)], tilewright.torch.nn.linear, F.linear


def _product(epilogue: str) -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    activation = {"passthrough": lambda z: z, "relu": torch.relu, "gelu": F.gelu, "tanh": torch.tanh}[epilogue]
    operands = [_tensor(2, 3, 8), _tensor(8, 5), _tensor(5)]
    return operands, lambda a, b, d: tw.gemm(a, b, bias=d, epilogue=epilogue), lambda a, b, d: activation(a @ b + d)


def _conv(epilogue: str) -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    activation = torch.relu if epilogue == "relu" else lambda z: z
    options: dict[str, Any] = {"stride": 2, "padding": 1}
    return (
        [_tensor(2, 4, 7, 7), _tensor(6, 4, 3, 3), _tensor(6)],
        lambda x, w, d: tw.conv(x, w, d, layout="nchw", epilogue=epilogue, **options),
        lambda x, w, d: activation(F.conv2d(x, w, d, **options)),
    )


def _attention() -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    ours = tilewright.torch.scaled_dot_product_attention
    return [_tensor(1, 2, 6, 8) for _ in range(3)], ours, F.scaled_dot_product_attention


CASES: dict[str, Callable[[], tuple[list[Any], Callable[..., Any], Callable[..., Any]]]] = {
    "linear": _linear,
    **{f"product {name}": partial(_product, name) for name in ("passthrough", "relu", "gelu", "tanh")},
    **{f"conv {name}": partial(_conv, name) for name in ("passthrough", "relu")},
    "attention": _attention,
}


def _gradients(call: Callable[..., Any], operands: list[Any], **options: Any) -> list[Any]:
    result = call(*operands)
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape)
    wanted = [operand for operand in operands if operand.requires_grad]
    return [result, *torch.autograd.grad(result, wanted, weights, **options)]


def _close(ours: list[Any], exact: list[Any], bound: float) -> None:
    for mine, other in zip(ours, exact, strict=True):
        assert mine.shape == other.shape
        assert (mine.double() - other).abs().max() <= bound * (1 + other.abs().max())


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were made."""
    seen: list[str] = []
    for name in ("_LINEAR_NODE", "_PRODUCT", "_CONVOLUTION", "_ATTENTION"):
        apply = getattr(recorded, name)

        def counted(*operands: Any, apply: Any = apply, name: str = name) -> Any:
            seen.append(name)
            return apply(*operands)

        monkeypatch.setattr(recorded, name, counted)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_float64(name: str, short: list[str]) -> None:
    operands, ours, theirs = CASES[name]()
    exact = _gradients(theirs, [operand.detach().double().requires_grad_() for operand in operands])
    _close(_gradients(ours, operands), exact, 2e-5)
    assert len(short) == 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("only", range(3))
def test_what_is_frozen_has_no_gradient_and_nothing_is_kept_for_it(name: str, only: int) -> None:
    operands, ours, theirs = CASES[name]()
    for index, operand in enumerate(operands):
        operand.requires_grad_(index == only)
    exact = _gradients(
        theirs, [operand.detach().double().requires_grad_(operand.requires_grad) for operand in operands]
    )
    _close(_gradients(ours, operands), exact, 2e-5)
    if name == "linear":
        result = ours(*operands)
        kept = result.grad_fn.saved_tensors
        assert [tensor is not None for tensor in kept] == [only == 1, only == 0]


@pytest.mark.parametrize("name", [name for name in CASES if name != "attention"])
def test_gradients_of_gradients(name: str) -> None:
    operands, ours, theirs = CASES[name]()

    def second(call: Callable[..., Any], inputs: list[Any]) -> list[Any]:
        _, *first = _gradients(call, inputs, create_graph=True)
        squares = sum((gradient**2).sum() for gradient in first)
        return list(torch.autograd.grad(squares, inputs, materialize_grads=True))

    _close(second(ours, operands), second(theirs, [each.detach().double().requires_grad_() for each in operands]), 1e-3)


def test_autocast_gives_gradients_of_the_originals_types(short: list[str]) -> None:
    for name in ("linear", "product relu", "conv passthrough"):
        operands, ours, theirs = CASES[name]()
        with torch.autocast("cpu", torch.bfloat16):
            result = ours(*operands)
            assert torch.is_autocast_enabled("cpu")  # as it was before
        assert result.dtype is torch.bfloat16
        result.float().square().sum().backward()
        exact = [operand.detach().double().requires_grad_() for operand in operands]
        theirs(*exact).square().sum().backward()
        for operand, other in zip(operands, exact, strict=True):
            assert operand.grad.dtype is torch.float32
            assert (operand.grad.double() - other.grad).norm() <= 3e-2 * other.grad.norm()
    assert short == ["_LINEAR_NODE", "_PRODUCT", "_CONVOLUTION"]


def test_gradients_lie_as_the_weights_do() -> None:
    """Else PyTorch copies every one of them when it accumulates."""
    weight, x = _tensor(6, 8), _tensor(3, 8)
    filters = torch.randn(6, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    images = torch.randn(2, 4, 7, 7).to(memory_format=torch.channels_last)
    for parameter, result in (
        (weight, tilewright.torch.nn.linear(x, weight)),
        (weight, tw.gemm(x, weight.T)),
        (filters, tw.conv(images, filters, layout="nchw")),
    ):
        (gradient,) = torch.autograd.grad(result.sum(), parameter)
        assert gradient.stride() == parameter.stride()


def test_what_is_written_in_place_afterwards() -> None:
    x, weight = _tensor(3, 8), _tensor(5, 8)
    layer = tilewright.torch.nn.linear(x, weight)
    torch.relu_(layer).sum().backward()  # a result is no view of anything
    assert torch.allclose(x.grad, torch.autograd.grad(F.linear(x, weight).relu().sum(), x)[0], atol=1e-5)
    product = tilewright.torch.nn.linear(x, weight)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


class _Own(torch.Tensor):  # type: ignore[misc]
    pass


def test_calls_that_are_others() -> None:
    """Whatever PyTorch has around a call but autograd, the general way sees."""
    a, b = _tensor(3, 8), _tensor(8, 5)
    usual = recorded.usual
    assert usual(a, b)
    assert not usual(a.detach(), b.detach())
    assert not usual(a.detach().as_subclass(_Own), b)
    assert not usual(a.double(), b)
    assert not usual(3, b)
    with torch.no_grad():
        assert not usual(a, b)
    seen: list[bool] = []

    def asked(left: Any) -> Any:
        seen.append(usual(left, b))
        return left.sum()

    torch.func.vmap(asked)(a)
    torch.func.grad(asked)(a)
    with torch.autograd.forward_ad.dual_level():
        seen.append(usual(a, b))
    with torch._subclasses.fake_tensor.FakeTensorMode():
        seen.append(usual(a, b))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)):
        seen.append(usual(a, b))
    assert seen == [False] * 5
    plain = {"alpha": 1.0, "beta": None, "bias": None, "residual": None, "ds": (), "epilogue": "passthrough",
             "out": None, "out_dtype": None, "math": "", "copy": "never", "target": None}  # fmt: skip
    others = {"alpha": 2.0, "beta": 1.0, "residual": b, "ds": (b,), "epilogue": "multiply", "out": b,
              "out_dtype": torch.float32, "copy": "sometimes", "target": "cpu"}  # fmt: skip
    for name, value in others.items():
        assert tensors.recorded["gemm"](a, b, None, **{**plain, name: value}) is None, name


def test_a_gradient_that_kernels_cannot_read_is_copied() -> None:
    x, weight = _tensor(4, 8), _tensor(6, 8)
    result = tilewright.torch.nn.linear(x, weight)
    strided = torch.randn(8, 12)[::2, ::2]
    expected = torch.autograd.grad(F.linear(x, weight), (x, weight), strided)
    for mine, other in zip(torch.autograd.grad(result, (x, weight), strided), expected, strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    repeated = torch.ones(()).expand(4, 6)
    assert torch.allclose(
        torch.autograd.grad(tw.gemm(x, weight.T), x, repeated)[0], weight.sum(0).expand(4, 8), atol=1e-5
    )


@pytest.mark.parametrize("name", ["linear", "product relu", "conv passthrough", "attention"])
def test_deterministic_mode_is_asked_in_the_backward_pass(name: str) -> None:
    operands, ours, _ = CASES[name]()
    first = _gradients(ours, operands)
    torch.use_deterministic_algorithms(True)
    try:
        second = _gradients(ours, operands)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.allclose(before, after, atol=1e-5) for before, after in zip(first, second, strict=True))


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (4, 5), (1, 1), (5,), ()])
def test_a_bias_of_linear_may_have_any_shape_that_broadcasts(shape: tuple[int, ...]) -> None:
    layer = torch.nn.Linear(3, 5)
    layer.bias = torch.nn.Parameter(torch.randn(shape))
    x = torch.randn(4, 3)
    exact = torch.autograd.grad(layer(x).square().sum(), (layer.weight, layer.bias))
    tilewright.torch.replace_modules(layer)
    ours = torch.autograd.grad(layer(x).square().sum(), (layer.weight, layer.bias))
    for mine, theirs in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_inference_mode_records_nothing_whatever_is_enabled_inside() -> None:
    layer, q = tilewright.torch.nn.Linear(3, 5), torch.randn(1, 2, 4, 8, requires_grad=True)
    with torch.inference_mode(), torch.enable_grad():
        results = [
            layer(torch.randn(4, 3)),
            tw.gemm(torch.randn(4, 3), layer.weight.t(), epilogue="gelu"),
            tilewright.torch.scaled_dot_product_attention(q, q, q),
        ]
    assert [result.requires_grad for result in results] == [False] * 3


@pytest.mark.parametrize(("filters", "groups"), [((8, 4, 1, 1), 1), ((4, 1, 3, 3), 4), ((6, 4, 3, 1), 1)])
def test_gradients_of_filters_have_their_strides(filters: tuple[int, ...], groups: int) -> None:
    w = torch.randn(filters, requires_grad=True)
    tw.conv(torch.randn(2, 4, 7, 7), w, layout="nchw", groups=groups).sum().backward()
    assert w.grad is not None
    assert w.grad.stride() == w.stride()


def test_the_gradient_of_relu_does_not_hide_nan() -> None:
    x = torch.ones(1, 3)
    x[0, 0] = float("nan")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(tw.gemm(x, torch.ones(3, 2), epilogue="relu").sum(), x)
    assert gradient.tolist() == [[2.0, 2.0, 2.0]]
