"""Gradients beside those PyTorch computes in float64, of eager, traced and transformed calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)
F: Any = torch.nn.functional

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "passthrough": lambda z: z,
    "relu": torch.relu,
    "gelu": F.gelu,
    "fastgelu": lambda z: F.gelu(z, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
# Of the largest entry: sums of some dozens of products, and one rounding of what is between the kernels.
BOUNDS = {torch.float32: 3e-6, torch.float16: 6e-3, torch.bfloat16: 5e-2}


def draw(dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def close(one: Any, other: Any, bound: float) -> bool:
    """Within a bound of the largest entry."""
    return not other.numel() or bool((one - other).abs().max() <= bound * other.abs().max())


def compare(ours: Callable[..., Any], exact: Callable[..., Any], operands: list[Any]) -> None:
    """Gradients of a sum of squares, which differ from entry to entry, for every operand."""
    wide = [one.detach().double().requires_grad_() for one in operands]
    found, expected = ours(*operands), exact(*wide)
    bound = BOUNDS[operands[0].dtype]
    weights = torch.linspace(0.5, 1.5, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    assert found.shape == expected.shape
    assert close(found, expected, bound)
    of_found = torch.autograd.grad((found.double() * weights).sum(), operands)
    of_expected = torch.autograd.grad((expected * weights).sum(), wide)
    for index, (one, other, operand) in enumerate(zip(of_found, of_expected, operands, strict=True)):
        assert one.dtype == operand.dtype
        assert one.shape == operand.shape
        assert close(one, other, bound), index


@pytest.mark.parametrize("road", ["plain", "op"])
@pytest.mark.parametrize("epilogue", ACTIVATIONS)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_products_with_bias_residual_and_activation(dtype: Any, epilogue: str, road: str) -> None:
    operands = draw(dtype, (3, 4, 16), (16, 8), (8,), (4, 8))
    act = ACTIVATIONS[epilogue]

    def ours(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        if road == "plain":
            return tw.gemm(a, b, alpha=0.5, bias=bias, residual=residual, epilogue=epilogue)
        kind = "add" if epilogue == "passthrough" else epilogue
        return torch.ops.tilewright.gemm(a, b, None, bias, residual, alpha=0.5, epilogue=kind)

    compare(ours, lambda a, b, bias, residual: act(0.5 * (a @ b) + bias + residual), operands)


@pytest.mark.parametrize("road", ["plain", "op"])
def test_products_that_are_multiplied_or_added_to(road: str) -> None:
    operands = draw(torch.float32, (4, 16), (16, 8), (4, 8), (8,))
    gemm = torch.ops.tilewright.gemm

    def multiplied(a: Any, b: Any, d0: Any, d1: Any) -> Any:
        if road == "plain":
            return tw.gemm(a, b, ds=(d0, d1), epilogue="multiply")
        return gemm(a, b, None, d0, d1, epilogue="multiply")

    compare(multiplied, lambda a, b, d0, d1: (a @ b) * d0 * d1, operands)
    operands = draw(torch.float32, (4, 16), (16, 8), (4, 8))
    call = tw.gemm if road == "plain" else gemm
    compare(lambda a, b, c: call(a, b, c, beta=-2.0), lambda a, b, c: a @ b - 2.0 * c, operands)


@pytest.mark.parametrize(
    "shapes",
    [((16,), (16,)), ((4, 16), (16,)), ((16,), (16, 8)), ((3, 4, 16), (16,)), ((2, 1, 4, 16), (3, 16, 8)),
     ((4, 16), (3, 16, 8)), ((3, 4, 16), (16, 8)), ((0, 16), (16, 8)), ((4, 0), (0, 8)),
     ((2, 3, 0), (0,)), ((2, 0, 0), (0,)), ((2, 3, 0), (0, 8))],
    ids=str,
)  # fmt: skip
def test_products_of_every_shape(shapes: tuple[tuple[int, ...], ...]) -> None:
    compare(tw.matmul, torch.matmul, draw(torch.float32, *shapes))
    compare(torch.ops.tilewright.matmul, torch.matmul, draw(torch.float32, *shapes))


CONVS: dict[str, Any] = {"1": F.conv1d, "2": F.conv2d, "3": F.conv3d}


@pytest.mark.parametrize("road", ["plain", "op"])
@pytest.mark.parametrize("memory", ["contiguous", "channels_last"])
@pytest.mark.parametrize("epilogue", ["passthrough", "relu", "gelu"])
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_convolutions(dtype: Any, epilogue: str, memory: str, road: str) -> None:
    x, w, bias = draw(dtype, (2, 4, 7, 9), (6, 2, 3, 3), (6,))
    if memory == "channels_last":
        x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    act, geometry = ACTIVATIONS[epilogue], {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}

    def ours(x: Any, w: Any, bias: Any) -> Any:
        call: Any = tw.conv if road == "plain" else torch.ops.tilewright.conv
        return call(x, w, bias, layout="nchw", epilogue=epilogue, **geometry)

    compare(ours, lambda x, w, bias: act(F.conv2d(x, w, bias, **geometry)), [x, w, bias])


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks(rank: int) -> None:
    size = (9, 5, 4)[:rank]
    operands = draw(torch.float32, (2, 4, *size), (6, 4, *(3,) * rank), (6,))
    exact = CONVS[str(rank)]
    compare(
        lambda x, w, bias: tw.conv(x, w, bias, layout="nchw", padding=1),
        lambda x, w, bias: exact(x, w, bias, padding=1),
        operands,
    )


def test_gradients_of_gradients() -> None:
    a, b = draw(torch.float32, (4, 16), (16, 8))

    def penalty(product: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        (of_a,) = torch.autograd.grad(product(a, b).tanh().sum(), a, create_graph=True)
        return torch.autograd.grad(of_a.square().sum(), (a, b))

    wide = [one.detach().double().requires_grad_() for one in (a, b)]
    for product in (tw.gemm, torch.ops.tilewright.gemm):
        for one, other in zip(penalty(product, a, b), penalty(torch.matmul, *wide), strict=True):
            assert close(one, other, 1e-5)
    x, w = draw(torch.float32, (2, 4, 7, 9), (6, 4, 3, 3))
    wide = [one.detach().double().requires_grad_() for one in (x, w)]
    ours = penalty(lambda x, w: tw.conv(x, w, layout="nchw"), x, w)
    for one, other in zip(ours, penalty(F.conv2d, *wide), strict=True):
        assert close(one, other, 1e-5)


def test_only_what_is_asked_for_is_computed() -> None:
    a, b = draw(torch.float32, (4, 16), (16, 8))
    frozen = b.detach()
    tw.gemm(a, frozen).sum().backward()
    assert a.grad is not None
    assert frozen.grad is None
    x, w = draw(torch.float32, (2, 4, 7, 9), (6, 4, 3, 3))
    tw.conv(x.detach(), w, layout="nchw").sum().backward()
    assert x.grad is None
    assert w.grad is not None


def test_what_was_saved_and_then_written_is_an_error() -> None:
    a, b = draw(torch.float32, (4, 16), (16, 8))
    held = a.detach().clone()
    result = tw.gemm(held, b)
    held.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


# -- transforms --------------------------------------------------------------------------------------------------------


IMAGES: dict[str, Any] = {"layout": "nchw"}
WRITTEN_OVER: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gemm": (tw.gemm, torch.matmul, ((4, 6), (6, 3))),
    "scaled": (lambda a, b: tw.gemm(a, b, alpha=2.0), lambda a, b: 2 * (a @ b), ((4, 6), (6, 3))),
    "residual": (lambda a, b, r: tw.gemm(a, b, residual=r), lambda a, b, r: a @ b + r, ((4, 6), (6, 3), (4, 3))),
    "gelu": (lambda a, b: tw.gemm(a, b, epilogue="gelu"), lambda a, b: F.gelu(a @ b), ((4, 6), (6, 3))),
    "matmul": (tw.matmul, torch.matmul, ((2, 4, 6), (6, 3))),
    "conv": (lambda x, w: tw.conv(x, w, **IMAGES), F.conv2d, ((2, 3, 5, 5), (4, 3, 3, 3))),
    "conv residual": (lambda x, w, r: tw.conv(x, w, residual=r, **IMAGES), lambda x, w, r: F.conv2d(x, w) + r,
                      ((2, 3, 5, 5), (4, 3, 3, 3), (4, 1, 1))),
    "dgrad": (lambda dy, w: tw.conv_backward_data(dy, w, (2, 3, 5, 5), **IMAGES), F.conv_transpose2d,
              ((2, 4, 3, 3), (4, 3, 3, 3))),
    "op gemm": (torch.ops.tilewright.gemm, torch.matmul, ((4, 6), (6, 3))),
    "op gated": (lambda a, b: torch.ops.tilewright.gated_gemm(a, b, b), lambda a, b: F.silu(a @ b) * (a @ b),
                 ((4, 6), (6, 3))),
    "op conv": (lambda x, w: torch.ops.tilewright.conv(x, w, layout="nchw"), F.conv2d, ((2, 3, 5, 5), (4, 3, 3, 3))),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN_OVER)
def test_a_result_that_no_gradient_reads_may_be_written_over(case: str) -> None:
    """`y += x` and `ReLU(inplace=True)` behind a product, as PyTorch's own allow it."""
    ours, exact, shapes = WRITTEN_OVER[case]
    compare(
        lambda *given: ours(*given).mul_(1.5).add_(1),
        lambda *given: exact(*given) * 1.5 + 1,
        draw(torch.float32, *shapes),
    )


def loss(x: Any, w: Any) -> Any:
    return tw.gemm(x, w.T, epilogue="gelu").square().sum()


def exact_loss(x: Any, w: Any) -> Any:
    return F.gelu(x @ w.T).square().sum()


def test_func_grad_and_gradients_for_each_sample() -> None:
    x, w = torch.randn(5, 3, 8), torch.randn(4, 8)
    torch.testing.assert_close(torch.func.grad(loss)(x[0], w), torch.func.grad(exact_loss)(x[0], w))
    ours = torch.func.vmap(torch.func.grad(loss, argnums=1), (0, None))(x, w)
    theirs = torch.func.vmap(torch.func.grad(exact_loss, argnums=1), (0, None))(x, w)
    torch.testing.assert_close(ours, theirs)
    images, filters = torch.randn(5, 2, 4, 6, 6), torch.randn(3, 4, 3, 3)

    def conv_loss(w: Any, x: Any) -> Any:
        return tw.conv(x, w, layout="nchw", epilogue="relu").square().sum()

    ours = torch.func.vmap(torch.func.grad(conv_loss), (None, 0))(filters, images)
    theirs = torch.func.vmap(torch.func.grad(lambda w, x: F.conv2d(x, w).relu().square().sum()), (None, 0))(
        filters, images
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2)], ids=str)
def test_vmap_of_products(axes: tuple[int | None, int | None]) -> None:
    x, w = torch.randn(4, 8), torch.randn(8, 5)
    x = x if axes[0] is None else torch.randn(3, 4, 8).movedim(0, axes[0])
    w = w if axes[1] is None else torch.randn(3, 8, 5).movedim(0, axes[1])
    bias = torch.randn(3, 1)

    def ours(x: Any, w: Any, bias: Any) -> Any:
        return tw.gemm(x, w, residual=bias, epilogue="relu")

    theirs = torch.func.vmap(lambda x, w, bias: torch.relu(x @ w + bias), (*axes, 0))(x, w, bias)
    torch.testing.assert_close(torch.func.vmap(ours, (*axes, 0))(x, w, bias), theirs)
    torch.testing.assert_close(torch.func.vmap(tw.matmul, axes)(x, w), torch.func.vmap(torch.matmul, axes)(x, w))


def test_vmap_of_vectors_images_and_attention() -> None:
    u, v = torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(torch.func.vmap(tw.matmul)(u, v), (u * v).sum(-1))
    x, w = torch.randn(3, 2, 4, 6, 6), torch.randn(3, 5, 4, 3, 3)

    def ours(x: Any, w: Any) -> Any:
        return tw.conv(x, w, layout="nchw")

    for axes in ((0, None), (0, 0), (None, 0)):
        operands = x if axes[0] is not None else x[0], w if axes[1] is not None else w[0]
        theirs = torch.func.vmap(F.conv2d, axes)(*operands)
        torch.testing.assert_close(torch.func.vmap(ours, axes)(*operands), theirs, rtol=1e-4, atol=1e-4)
    q = torch.randn(3, 2, 5, 2, 16)
    ours_too, sums = torch.func.vmap(lambda q: tw.attention(q, q, q, return_lse=True))(q)
    expected, lse = tw.attention(*(q.flatten(0, 1),) * 3, return_lse=True)
    assert torch.equal(ours_too.flatten(0, 1), expected)
    assert torch.equal(sums.flatten(0, 1), lse)


def _sdpa(*operands: Any) -> Any:
    return F.scaled_dot_product_attention(*operands)


VMAPPED: dict[str, tuple[Any, Any, tuple[Any, ...], list[tuple[int, ...]]]] = {
    "gemm": (tw.gemm, torch.matmul, (0, 0), [(3, 4, 5), (3, 5, 6)]),
    "gelu": (lambda a, b: tw.gemm(a, b, epilogue="gelu"), lambda a, b: F.gelu(a @ b), (0, 0), [(3, 4, 5), (3, 5, 6)]),
    "one weight": (tw.gemm, torch.matmul, (0, None), [(3, 4, 5), (5, 6)]),
    "matmul": (tw.matmul, torch.matmul, (1, 2), [(4, 3, 5), (5, 6, 3)]),
    "gated": (
        tw.gated_gemm, lambda a, b, c: F.silu(a @ b) * (a @ c), (0, None, 0), [(3, 4, 5), (5, 6), (3, 5, 6)]
    ),
    "conv": (
        lambda x, w: tw.conv(x, w, layout="nchw"), F.conv2d, (0, None), [(3, 2, 4, 8, 8), (8, 4, 3, 3)]
    ),
    "filters": (
        lambda x, w: tw.conv(x, w, layout="nchw"), F.conv2d, (0, 0), [(3, 2, 4, 8, 8), (3, 8, 4, 3, 3)]
    ),
    "attention": (
        lambda q, k, v: tw.attention(q, k, v, layout="bhsd"), _sdpa, (0, 0, 0), [(3, 2, 2, 8, 16)] * 3
    ),
    "one cache": (
        lambda q, k, v: tw.attention(q, k, v, layout="bhsd"), _sdpa, (0, None, None),
        [(3, 2, 2, 8, 16), *[(2, 2, 8, 16)] * 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", VMAPPED)
def test_vmap_over_tensors_that_require_grad(case: str) -> None:
    """vmap hides what its operands require; gradients are recorded outside of it, and by a transform around it."""
    ours, theirs, axes, shapes = VMAPPED[case]
    operands = [torch.randn(shape, requires_grad=True) for shape in shapes]
    batched, right = torch.vmap(ours, axes), torch.vmap(theirs, axes)
    made, wanted = batched(*operands), right(*operands)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)
    factor = torch.randn_like(wanted)
    for found, exact in zip(
        torch.autograd.grad((made * factor).sum(), operands), torch.autograd.grad((wanted * factor).sum(), operands),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-3)
    plain, every = [one.detach() for one in operands], tuple(range(len(operands)))
    inner = torch.func.grad(lambda *each: (batched(*each) * factor).sum(), every)(*plain)
    outer = torch.func.grad(lambda *each: (right(*each) * factor).sum(), every)(*plain)
    torch.testing.assert_close(inner, outer, rtol=1e-3, atol=1e-3)


def test_ops_are_differentiated_by_transforms_too() -> None:
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    right = torch.func.grad(lambda x: (x @ b).square().sum())(a)
    mine = torch.func.grad(lambda x: torch.ops.tilewright.gemm(x, b).square().sum())(a)
    torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)
    beside = torch.func.grad(lambda x: (torch.ops.tilewright.gemm(a, b) * x).sum())(torch.ones(4, 6))
    torch.testing.assert_close(beside, a @ b, rtol=1e-4, atol=1e-4)  # it is no part of what is differentiated
    stacked = torch.vmap(lambda x: torch.ops.tilewright.gemm(x, b))(torch.stack([a, a]).requires_grad_())
    assert stacked.requires_grad


def _squares(product: Any) -> Any:
    """The gradient of a sum of squares."""
    return torch.func.grad(lambda x: product(x).square().sum())


def _nested(first: Callable[[Any], Any]) -> Any:
    return torch.func.grad(lambda x: first(x).square().sum())


TRANSFORMED: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": _squares,
    "grad of grad": lambda product: _nested(_squares(product)),
    "vmap of grad": lambda product: torch.func.vmap(_squares(product)),
    "grad of vmap": lambda product: _squares(torch.func.vmap(product)),
    "jacrev": torch.func.jacrev,
    "vjp": lambda product: lambda x: torch.func.vjp(product, x)[1](torch.ones(2, 4, 6))[0],
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("road", ["plain", "op"])
@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("case", TRANSFORMED)
def test_transforms_inside_of_what_is_compiled(case: str, way: str, road: str) -> None:
    """PyTorch's own `custom_op` has no gradient inside of a transform, in eager mode either."""
    if way == "compiled" and sys.version_info >= (3, 14):
        pytest.skip("torch.compile follows new Pythons late")
    x, b = torch.randn(2, 4, 5), torch.randn(5, 6)
    ours = (lambda y: tw.gemm(y, b)) if road == "plain" else (lambda y: torch.ops.tilewright.gemm(y, b))
    mine = TRANSFORMED[case](ours)
    if way == "compiled":
        torch._dynamo.reset()
        mine = torch.compile(mine, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(mine(x), TRANSFORMED[case](lambda y: y @ b)(x), rtol=1e-3, atol=1e-3)


def test_a_transform_inside_of_what_autograd_records() -> None:
    x, b = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
    sums = [_squares(product)(x).square().sum() for product in (lambda y: tw.gemm(y, b), lambda y: y @ b)]
    mine, right = (torch.autograd.grad(total, x)[0] for total in sums)
    torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-3)
