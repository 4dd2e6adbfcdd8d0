"""Gradients of products and convolutions, by the same kernels: formulas that eager, traced and compiled calls share.

`dz` is the gradient of what an activation is applied to.  ReLU, sigmoid and tanh have theirs from the result; the
others need their input, which callers keep (`functional`) or which is computed once more here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import ProblemError
from tilewright.ops.fused import GATES, GATES_BY_ACTIVATION, normal_epilogue
from tilewright.torch.kernels import added
from tilewright.torch.required import torch

LINEAR = ("PassThrough", "MultiDAdd")
_F = torch.nn.functional
_of_older_vmap = torch._C._functorch.is_legacy_batchedtensor

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Relu": torch.relu,
    "Gelu": _F.gelu,
    "FastGelu": lambda z: _F.gelu(z, approximate="tanh"),
    "Silu": _F.silu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}

# The gradient of an activation from that of its result and the result itself.
FROM_RESULT: dict[str, Callable[[Any, Any], Any]] = {
    "Relu": lambda de, e: torch.where(e <= 0, torch.zeros_like(de), de),  # NaN goes on, as in PyTorch
    "Sigmoid": lambda de, e: de * (e * (1 - e)),
    "Tanh": lambda de, e: de * (1 - e * e),
}

_FROM_INPUT: dict[str, Callable[[Any, Any], Any]] = {
    "Gelu": torch.ops.aten.gelu_backward,
    "FastGelu": lambda de, z: torch.ops.aten.gelu_backward(de, z, approximate="tanh"),
    "Silu": torch.ops.aten.silu_backward,
}


def linear_epilogue(epilogue: str, count: int) -> str:
    """What is left of an epilogue without its activation."""
    return "MultiDAdd" if count else "PassThrough"


def needs_input(epilogue: str) -> bool:
    """Whether a gradient needs what the epilogue is applied to."""
    return epilogue in _FROM_INPUT or epilogue == "MultiDMultiply" or epilogue in GATES


def needs_result(epilogue: str) -> bool:
    """Whether a gradient needs what the epilogue gave; where it does not, a program may write over its result."""
    return normal_epilogue(epilogue) in FROM_RESULT


def reduced(gradient: Any, operand: Any) -> Any:
    """A gradient of the result's shape as one of an operand that was broadcast to it."""
    if gradient.shape != operand.shape:
        gradient = gradient.sum_to_size(operand.shape)
    return gradient if gradient.dtype == operand.dtype else gradient.to(operand.dtype)


def through_epilogue(
    epilogue: str, de: Any, e: Any, ds: tuple[Any, Any], wanted: Any, z: Callable[[], Any]
) -> tuple[Any, Any, Any]:
    """Gradients of the sums and of the two D tensors, where wanted; `z` computes the sums once more."""
    kind = normal_epilogue(epilogue)
    if kind == "MultiDMultiply":
        return _through_product(de, ds, wanted, z)
    if kind in GATES:
        return _through_gate(GATES[kind], de, ds[0], wanted, z)
    if kind in FROM_RESULT:
        dz = FROM_RESULT[kind](de, e)
    elif kind in _FROM_INPUT:
        dz = _FROM_INPUT[kind](de, z())
    else:
        dz = de
    of_d0, of_d1 = (reduced(dz, d) if want else None for d, want in zip(ds, wanted, strict=True))
    return dz, of_d0, of_d1


def _through_gate(activation: str, de: Any, d: Any, wanted: Any, z: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """E = activation(Z) D0."""
    sums = z()
    of_d = reduced(de * ACTIVATIONS[activation](sums), d) if wanted[0] else None
    return _FROM_INPUT[activation](de * d, sums), of_d, None


def _through_product(de: Any, ds: tuple[Any, Any], wanted: Any, z: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """E = Z D0 D1: each has the gradient times the others."""
    d0: Any = 1 if ds[0] is None else ds[0]
    d1: Any = 1 if ds[1] is None else ds[1]
    by_sums: Any = de * z() if any(wanted) else None
    of_d0 = reduced(by_sums * d1, d0) if wanted[0] else None
    of_d1 = reduced(by_sums * d0, d1) if wanted[1] else None
    return de * d0 * d1, of_d0, of_d1


def demand_floats(what: str, tensor: Any) -> None:
    """Gradients are computed in the types PyTorch trains in."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        held = str(tensor.dtype).removeprefix("torch.")
        raise ProblemError(
            f"{what} holds {held}, through which no gradient is computed",
            rule="array-grad",
            value=held,
            remedy=f"give {what} as float32, float16 or bfloat16, or call under torch.no_grad()",
        )


def demand_unbatched(gradient: Any) -> Any:
    """A gradient that kernels can read: not one of PyTorch's older vmap, which no rule of ours is for."""
    if not torch.compiler.is_compiling() and _of_older_vmap(gradient):
        raise ProblemError(
            "gradients are batched the older way (is_grads_batched=True, or jacobian and hessian with vectorize=True)",
            rule="torch-transform",
            value="is_grads_batched",
            remedy="use torch.func.jacrev, or torch.func.vmap over torch.func.vjp; or compute one gradient at a time",
        )
    return gradient


def dense(gradient: Any) -> Any:
    """A gradient of a sum is one number that repeats: kernels read numbers that lie in memory."""
    return gradient.contiguous() if 0 in demand_unbatched(gradient).stride() else gradient


def _flat(matrices: Any) -> Any:
    rows = 1
    for size in matrices.shape[:-1]:
        rows *= size
    return matrices.reshape(rows, matrices.shape[-1])  # -1 says nothing where there are no columns


def of_left(gemm: Callable[..., Any], dz: Any, a: Any, b: Any, alpha: Any, math: str) -> Any:
    """dA = alpha dZ B^T, summed where A was broadcast."""
    demand_floats("b", b)
    return reduced(gemm(dz.to(b.dtype), b.transpose(-2, -1), alpha=alpha, math=math), a)


def of_right(gemm: Callable[..., Any], dz: Any, a: Any, b: Any, alpha: Any, math: str) -> Any:
    """dB = alpha A^T dZ, summed where B was broadcast: within the product where one B serves the whole batch."""
    demand_floats("a", a)
    dz = dz.to(a.dtype)
    if b.dim() == 2 and a.dim() == dz.dim() > 2:
        a = a.expand(*dz.shape[:-2], *a.shape[-2:])
        a, dz = _flat(a), _flat(dz)
    return reduced(gemm(a.transpose(-2, -1), dz, alpha=alpha, math=math), b)


def of_gemm(
    gemm: Callable[..., Any], de: Any, tensors: tuple[Any, ...], e: Any, needed: Any, options: dict[str, Any]
) -> tuple[Any, ...]:
    """Gradients of a, b, c, d0 and d1; `gemm` computes products, and is differentiable where this must be."""
    a, b, c, d0, d1 = tensors
    alpha, beta, math = options["alpha"], options["beta"], options["math"]
    beta = (0.0 if c is None else 1.0) if beta is None else beta
    ds = added(d0, d1)

    def sums() -> Any:
        kind = normal_epilogue(options["epilogue"])
        fused = () if kind == "MultiDMultiply" or kind in GATES else ds
        return gemm(a, b, c, *fused, alpha=alpha, beta=beta, math=math, out_dtype=de.dtype,
                    epilogue=linear_epilogue(kind, len(fused)))  # fmt: skip

    dz, *of_ds = through_epilogue(options["epilogue"], dense(de), e, (d0, d1), needed[3:5], sums)
    return (
        of_left(gemm, dz, a, b, alpha, math) if needed[0] else None,
        of_right(gemm, dz, a, b, alpha, math) if needed[1] else None,
        reduced(dz * beta, c) if needed[2] else None,
        *of_ds,
    )


def of_gated(
    gemm: Callable[..., Any], de: Any, tensors: tuple[Any, Any, Any], needed: Any, options: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Gradients of a, gate and up, both products computed once more."""
    a, gate, up = tensors
    math, kind = options["math"], GATES[GATES_BY_ACTIVATION[options["activation"]]]
    de = dense(de)
    g = gemm(a, gate, math=math, out_dtype=de.dtype)
    u = gemm(a, up, math=math, out_dtype=de.dtype)
    of_g, of_u = _FROM_INPUT[kind](de * u, g), de * ACTIVATIONS[kind](g)
    da = None
    if needed[0]:
        da = of_left(gemm, of_g, a, gate, 1.0, math) + of_left(gemm, of_u, a, up, 1.0, math)
    return (
        da,
        of_right(gemm, of_g, a, gate, 1.0, math) if needed[1] else None,
        of_right(gemm, of_u, a, up, 1.0, math) if needed[2] else None,
    )


def of_matmul(gemm: Callable[..., Any], de: Any, a: Any, b: Any, needed: Any, math: str) -> tuple[Any, Any]:
    """Vectors are matrices of one row, or one column, that the result lacks."""
    de = dense(de)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    if b.dim() == 1:
        de = de.unsqueeze(-1)
    if a.dim() == 1:
        de = de.unsqueeze(-2)
    da = of_left(gemm, de, left, right, 1.0, math).reshape(a.shape) if needed[0] else None
    db = of_right(gemm, de, left, right, 1.0, math).reshape(b.shape) if needed[1] else None
    return da, db


def over_pixels(dz: Any, layout: str) -> Any:
    """The gradient of a bias: sums over everything but the channels."""
    channels = 1 if layout.lower() in ("nchw", "ncw", "ncdhw", "channels_first") else dz.dim() - 1
    return dz.sum([axis for axis in range(dz.dim()) if axis != channels])


def of_conv(
    calls: Any, dy: Any, tensors: tuple[Any, ...], y: Any, needed: Any, options: dict[str, Any]
) -> tuple[Any, ...]:
    """Gradients of x, w, bias, d0 and d1; `calls` has conv and its two gradients."""
    x, w, bias, d0, d1 = tensors
    ds = added(d0, d1)
    geometry = {name: options[name] for name in ("stride", "padding", "dilation", "groups", "layout")}

    def sums() -> Any:
        kind = normal_epilogue(options["epilogue"])
        fused = () if kind == "MultiDMultiply" else ds
        linear = linear_epilogue(kind, len(fused))
        return calls.conv(x, w, bias, *fused, epilogue=linear, out_dtype=dy.dtype, **geometry)

    dz, *of_ds = through_epilogue(options["epilogue"], dense(dy), y, (d0, d1), needed[3:5], sums)
    inner = dz.to(x.dtype)
    more = {**geometry, "deterministic": torch.are_deterministic_algorithms_enabled()}
    if needed[0] or needed[1]:
        demand_floats("x", x)
    return (
        calls.conv_backward_data(inner, w, x.shape, **more) if needed[0] else None,
        calls.conv_backward_weight(x, inner, w.shape, **more) if needed[1] else None,
        over_pixels(dz, options["layout"]).to(bias.dtype) if needed[2] else None,
        *of_ds,
    )
