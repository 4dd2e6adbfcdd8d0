"""Eager calls that record a gradient, by the shortest way: one node of autograd around calls that C makes.

A training step of small kernels is the host's time.  So the usual calls (plain tensors, nothing of PyTorch's around but
autograd and autocast, no operands beside the factors and a bias) come here before anything else is asked; all others
have the general way (`functional`), and `None` says so.  Gradients are calls of the same public functions: where one is
itself differentiated, traced or batched, those see to it.
"""

from __future__ import annotations

from typing import Any

from tilewright.api import attention as attention_api
from tilewright.api import attention_backward as backward_api
from tilewright.api import conv as conv_api
from tilewright.api import gemm as gemm_api
from tilewright.api import tensors
from tilewright.runtime.calls import COPIES
from tilewright.runtime.copies import CopyNeeded
from tilewright.torch.gradients import ACTIVATIONS, FROM_RESULT, demand_unbatched, dense, needs_input, over_pixels
from tilewright.torch.required import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Epilogues as calls spell them, those whose gradient follows from the result first.
_PASS = "passthrough"
_LINEAR = (_PASS, "PassThrough")
_FROM_RESULT = {name.lower(): formula for name, formula in FROM_RESULT.items()} | FROM_RESULT
# Those whose gradient needs what they are applied to: PyTorch computes them behind the product.
_BEHIND = {name: formula for name, formula in ACTIVATIONS.items() if needs_input(name)}
_BEHIND |= {name.lower(): formula for name, formula in _BEHIND.items()}
_EPILOGUES = frozenset((*_LINEAR, *_FROM_RESULT, *_BEHIND))
_c, _forward_mode = torch._C, torch.autograd.forward_ad
_below_autograd = _c.DispatchKey.AutogradCPU
_records, _infers = torch.is_grad_enabled, torch.is_inference_mode_enabled


def usual(*operands: Any) -> bool:
    """Whether autograd alone is to know of an eager call on these operands, and must."""
    if not _records() or _infers() or _c._len_torch_dispatch_stack() or _c._is_tracing():
        return False
    if _c._functorch.peek_interpreter_stack() is not None or _forward_mode._current_level >= 0:
        return False
    if _c._dispatch_tls_is_dispatch_key_excluded(_below_autograd):
        return False
    recorded = False
    for operand in operands:
        if operand is None:
            continue
        if type(operand) not in _PLAIN or operand.dtype not in _FLOATS:
            return False
        if _c._functorch.is_functorch_wrapped_tensor(operand) or torch._is_functional_tensor(operand):
            return False
        recorded = recorded or operand.requires_grad
    return recorded


def _narrowed(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """As autocast wants them: the gradients of the originals have their own types."""
    device = operands[0].device.type
    if not torch.is_autocast_enabled(device):
        return operands
    kind = torch.get_autocast_dtype(device)
    return tuple(operand if operand is None else operand.to(kind) for operand in operands)


class _WithoutAutocast:
    """Operands have their types: C makes no call of which autocast may want others."""

    __slots__ = ("_device",)

    def __init__(self, operand: Any) -> None:
        self._device = operand.device.type

    def __enter__(self) -> None:
        torch.set_autocast_enabled(self._device, False)

    def __exit__(self, *_: object) -> None:
        torch.set_autocast_enabled(self._device, True)


def _call(function: Any, *operands: Any, **options: Any) -> Any:
    """Copied is what kernels cannot read, which gradients may be whatever the forward operands were."""
    try:
        return function(*operands, **options)
    except CopyNeeded:
        return function(*operands, copy="allow", **options)


def _forward(function: Any, copies: bool, *operands: Any, **options: Any) -> Any:
    if _c._is_any_autocast_enabled() and torch.is_autocast_enabled(operands[0].device.type):
        with _WithoutAutocast(operands[0]):
            return _call(function, *operands, **options) if copies else function(*operands, **options)
    return _call(function, *operands, **options) if copies else function(*operands, **options)


def _applied(function: Any) -> Any:
    """`function.apply` without its look for transforms, which `usual` has had."""
    return super(torch.autograd.Function, function).apply


def _fused(apply: Any, operands: tuple[Any, ...], epilogue: str, *options: Any) -> Any:
    behind = _BEHIND.get(epilogue)
    return apply(*operands, epilogue, *options) if behind is None else behind(apply(*operands, _PASS, *options))


def _rows(matrices: Any, columns: int) -> Any:
    return matrices if matrices.dim() == 2 else matrices.reshape(-1, columns)


# -- products ----------------------------------------------------------------------------------------------------------


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """Rows times the transpose of a weight, and a bias.  No transpose of a weight is recorded as a node of its own, and
    its gradient lies as the weight does, so that nothing is copied when it is accumulated."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        ctx.shapes = x.shape, weight.shape
        return _forward(gemm_api.gemm, True, x, weight.t(), bias=bias)

    @staticmethod
    def backward(ctx: Any, de: Any) -> Any:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        shape, (columns, depth) = ctx.shapes
        de = _rows(dense(de), columns)
        dx: Any = _call(gemm_api.gemm, de, weight) if of_x else None
        return (
            dx.view(shape) if of_x and len(shape) != 2 else dx,
            _call(gemm_api.gemm, de.t(), _rows(x, depth)) if of_weight else None,
            de.sum(0) if of_bias else None,
        )


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """One B for all rows, a bias that broadcasts, and an activation whose gradient follows from the result."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, bias: Any, epilogue: str, math: str, copies: bool) -> Any:
        e = _forward(gemm_api.gemm, copies, a, b, bias=bias, epilogue=epilogue, math=math)
        formula, needed = _FROM_RESULT.get(epilogue), ctx.needs_input_grad
        ctx.formula, ctx.math, ctx.shapes, ctx.by_columns = formula, math, (a.shape, b.shape), b.stride(0) == 1
        ctx.save_for_backward(a if needed[1] else None, b if needed[0] else None, e if formula else None)
        return e

    @staticmethod
    def backward(ctx: Any, de: Any) -> Any:
        a, b, e = ctx.saved_tensors
        of_a, of_b, of_bias, *_ = ctx.needs_input_grad
        dz = dense(de) if ctx.formula is None else ctx.formula(demand_unbatched(de), e)
        shape, (depth, columns) = ctx.shapes
        rows = _rows(dz, columns)
        da: Any = None
        db: Any = None
        if of_a:
            da = _call(gemm_api.gemm, rows, b.t(), math=ctx.math)
            da = da if len(shape) == 2 else da.view(shape)
        if of_b and ctx.by_columns:  # a transposed weight: its gradient then lies as the weight does
            db = _call(gemm_api.gemm, rows.t(), _rows(a, depth), math=ctx.math).t()
        elif of_b:
            db = _call(gemm_api.gemm, _rows(a, depth).t(), rows, math=ctx.math)
        return da, db, dz if of_bias else None, None, None, None  # autograd adds a bias up to its own shape


_LINEAR_NODE, _PRODUCT = _applied(_Linear), _applied(_Product)


def linear(x: Any, weight: Any, bias: Any) -> Any:
    """`torch.nn.functional.linear` that records; None where it is not for here."""
    if bias is not None and bias.dim() != 1:
        return None
    if x.dim() < 2 or not usual(x, weight, bias) or x.device != weight.device or 0 in x.shape or 0 in weight.shape:
        return None
    if _c._is_any_autocast_enabled():
        x, weight, bias = _narrowed((x, weight, bias))
    if x.dtype != weight.dtype:
        return None
    return _LINEAR_NODE(x, weight, bias)


def gemm(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, bias: Any, residual: Any, ds: Any, epilogue: Any, out: Any,
    out_dtype: Any, math: Any, copy: Any, target: Any,
) -> Any:  # fmt: skip
    """`tilewright.gemm` that records, by its arguments; None where it is not for here."""
    if c is not None or out is not None or residual is not None or out_dtype is not None or target is not None:
        return None
    if type(copy) is not str or copy not in COPIES:
        return None
    if beta is not None or type(alpha) is not float or alpha != 1.0 or type(ds) is not tuple or ds:
        return None
    if type(epilogue) is not str or epilogue not in _EPILOGUES or not usual(a, b, bias):
        return None
    if a.dim() < 2 or b.dim() != 2 or 0 in a.shape or 0 in b.shape:
        return None
    if _c._is_any_autocast_enabled():
        a, b, bias = _narrowed((a, b, bias))
    if a.dtype != b.dtype:
        return None
    return _fused(_PRODUCT, (a, b, bias), epilogue, math, copy == "allow")


# -- convolutions ------------------------------------------------------------------------------------------------------


def _strided(gradient: Any, strides: tuple[int, ...]) -> Any:
    """With the strides of its weight where these differ in dimensions of one element only: DDP compares them."""
    theirs = gradient.stride()
    if theirs == strides or any(
        size > 1 and stride != wanted for size, stride, wanted in zip(gradient.shape, theirs, strides, strict=True)
    ):
        return gradient
    return gradient.as_strided(gradient.shape, strides)


class _Convolution(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any, epilogue: str, geometry: dict[str, Any], copies: bool) -> Any:
        y = _forward(conv_api.conv, copies, x, w, bias, epilogue=epilogue, **geometry)
        formula, needed = _FROM_RESULT.get(epilogue), ctx.needs_input_grad
        ctx.formula, ctx.geometry, ctx.shapes = formula, geometry, (tuple(x.shape), tuple(w.shape))
        ctx.strides = w.stride()
        ctx.save_for_backward(x if needed[1] else None, w if needed[0] else None, y if formula else None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w, y = ctx.saved_tensors
        shape, filters = ctx.shapes
        of_x, of_w, of_bias, *_ = ctx.needs_input_grad
        dz = dense(dy) if ctx.formula is None else ctx.formula(demand_unbatched(dy), y)
        options = ctx.geometry
        if torch.are_deterministic_algorithms_enabled():
            options = {**options, "deterministic": True}
        return (
            _call(conv_api.conv_backward_data, dz, w, shape, **options) if of_x else None,
            _strided(_call(conv_api.conv_backward_weight, x, dz, filters, **options), ctx.strides) if of_w else None,
            over_pixels(dz, ctx.geometry["layout"]) if of_bias else None,
            None, None, None,
        )  # fmt: skip


_CONVOLUTION = _applied(_Convolution)


def images(x: Any, w: Any, bias: Any, geometry: dict[str, Any], epilogue: str = _PASS, copies: bool = True) -> Any:
    """A convolution that records, by its geometry; None where it is not for here."""
    if not usual(x, w, bias):
        return None
    if _c._is_any_autocast_enabled():
        x, w, bias = _narrowed((x, w, bias))
    return _fused(_CONVOLUTION, (x, w, bias), epilogue, geometry, copies) if x.dtype == w.dtype else None


def conv(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, layout: Any, residual: Any,
    ds: Any, epilogue: Any, out: Any, out_dtype: Any, copy: Any, target: Any,
) -> Any:  # fmt: skip
    """`tilewright.conv` that records, by its arguments; None where it is not for here."""
    if out is not None or residual is not None or out_dtype is not None or target is not None:
        return None
    if type(copy) is not str or copy not in COPIES:
        return None
    if type(ds) is not tuple or ds or type(epilogue) is not str or epilogue not in _EPILOGUES:
        return None
    if type(layout) is not str:
        return None
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout}
    return images(x, w, bias, geometry, epilogue, copy == "allow")


# -- attention ---------------------------------------------------------------------------------------------------------


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, options: dict[str, Any]) -> Any:
        out, lse = _forward(attention_api.attention, True, q, k, v, return_lse=True, **options)
        ctx.options = options
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        options = ctx.options
        if torch.are_deterministic_algorithms_enabled():
            options = {**options, "deterministic": True}
        gradients = _call(backward_api.attention_backward, dense(dout), q, k, v, out, lse, **options)
        return *(each if wanted else None for each, wanted in zip(gradients, ctx.needs_input_grad, strict=False)), None


_ATTENTION = _applied(_Attention)


def attention(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Any:
    """`tilewright.attention` of q, k and v alone that records, on a device with kernels for gradients; None where it is
    not for here.  Operands that kernels cannot read are copied."""
    if not usual(q, k, v):
        return None
    if _c._is_any_autocast_enabled():
        q, k, v = _narrowed((q, k, v))
    return _ATTENTION(q, k, v, options) if q.dtype == k.dtype == v.dtype else None


tensors.recorded |= {"gemm": gemm, "conv": conv}
