"""Convolutions on arrays: `conv`, and its gradients `conv_backward_data` and `conv_backward_weight`.

`tw.conv(x, w, bias, padding=1, epilogue="relu")` convolves NumPy arrays, PyTorch's tensors or anything with DLPack.
`print(tw.explain(tw.ConvProblem(1, 64, 64, (56, 56), (3, 3), before=(1, 1))))` says what would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.api import registry_of
from tilewright.api.tensors import public, recorded, seen
from tilewright.errors import ProblemError
from tilewright.ops.fused import called_as_given, with_added
from tilewright.runtime.bindings.conv import BINDING, Attributes, bound, normalized, two
from tilewright.runtime.bindings.conv.operands import D0, OUT
from tilewright.runtime.calls import NEVER, caller
from tilewright.runtime.torch_arrays import must_be_seen

_CALLER = caller(BINDING.op)
_PASS = "passthrough"


def _run(name: str, arrays: Any, operands: Any, options: tuple[Any, ...], target: str | None, copy: str) -> Any:
    """A call by its options as they were given, in the order of its attributes; what they mean is asked once.

    `name` and `given` are the function and its arrays in its own order, for PyTorch.
    """
    array = arrays[0]
    registry = registry_of(array, target)
    if copy is NEVER:
        done = _CALLER.attempt(registry, operands, (), options)
        if done is not None:
            return _CONV.keep(done) if name == "conv" else done
    if must_be_seen(operands):
        return _seen(name, arrays, operands, options, target, copy)
    return _CALLER.run_slow(registry, operands, (), normalized(options), copy, options)


def _sizes(shape: Any) -> Any:
    """A shape as C knows calls by: PyTorch has a tuple of its own for shapes, and its ops are given lists."""
    return shape if type(shape) is tuple or not isinstance(shape, (tuple, list)) else tuple(shape)


def _seen(name: str, arrays: Any, operands: Any, options: tuple[Any, ...], target: str | None, copy: str) -> Any:
    """The call as PyTorch sees it."""
    attributes = Attributes(*options)
    more: dict[str, Any] = {"deterministic": attributes.deterministic}
    if name == "conv":
        ds = tuple(operand for operand in operands[D0:OUT] if operand is not None)
        more = {"ds": ds, "epilogue": attributes.epilogue}
    return seen(
        name, *arrays, stride=attributes.stride, padding=attributes.padding, dilation=attributes.dilation,
        groups=attributes.groups, layout=attributes.layout, out=operands[OUT],
        out_dtype=attributes.out_dtype, copy=copy, target=target, **more,
    )  # fmt: skip


def conv(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "nhwc",
    residual: Any = None,
    ds: Sequence[Any] = (),
    epilogue: str = _PASS,
    out: Any = None,
    out_dtype: Any = None,
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """y = epilogue(conv(x, w) + bias + residual), or epilogue(conv(x, w) + bias, D0, D1), in 1 to 3 dimensions.

    `layout` is the order of dimensions.  "nhwc": x is (N, spatial, C), w (K, spatial, C/groups), y (N, spatial, K).
    "nchw": x is (N, C, spatial), w (K, C/groups, spatial), y (N, K, spatial).  The memory format is inferred from the
    strides: a channels_last tensor passed as "nchw" is not copied, and the result is channels-last too.  Channels-first
    memory is supported by kernels that read it directly, or by a copy inside of the call; `tilewright.explain` shows
    which.

    `stride` and `dilation` are a number or one per dimension; so is `padding`, or a pair (before, after) per dimension.
    `bias` has K values, `residual` broadcasts to the result; both are added before the activation.  `ds` are further
    tensors (CK's D tensors), which the epilogue adds, or multiplies by ("multiply"); at most two tensors in all.

    Both operands are fp32, fp16, bf16 or int8; accumulation is in fp32 (int8: int32).  The result has the dtype of
    `out`, else `out_dtype`, else that of the operands (int32 for int8).  A batch of 0 gives an empty result; a filter
    larger than the padded input is an error.
    """
    done = _CONV.call(
        x, w, bias, stride, padding, dilation, groups, layout, residual, ds, epilogue, out, out_dtype, copy, target
    )
    if done is None and (record := recorded.get("conv")):
        done = record(
            x, w, bias, stride, padding, dilation, groups, layout, residual, ds, epilogue, out, out_dtype, copy, target
        )
    if done is not None:
        return done
    if residual is not None:
        epilogue, ds = with_added(epilogue, ds, residual=residual)
    options = ("forward", stride, padding, dilation, groups, layout, None, epilogue, out_dtype, False)
    d0, d1 = (None, None) if type(ds) is tuple and not ds else two(ds)
    try:
        return _run("conv", (x, w, bias), (x, w, None, bias, d0, d1, out), options, target, copy)
    except ProblemError as error:
        raise called_as_given(error, residual=residual) from None


def conv_backward_data(
    dy: Any,
    w: Any,
    input_shape: Sequence[int],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "nhwc",
    out: Any = None,
    out_dtype: Any = None,
    deterministic: bool = False,
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """Gradient of `conv` with respect to x (dgrad), from the gradient of its result: a transposed convolution.

    `input_shape` is the shape of x in the order of `layout`; with strides over 1, several inputs give the same output
    shape.  `deterministic` requests bitwise equal results in every run.
    """
    geometry = stride, padding, dilation, groups, layout, _sizes(input_shape)
    options = ("backward_data", *geometry, _PASS, out_dtype, deterministic)
    operands = bound("backward_data", dy, w, None, (), out)
    return _run("conv_backward_data", (dy, w, input_shape), operands, options, target, copy)


def conv_backward_weight(
    x: Any,
    dy: Any,
    weight_shape: Sequence[int],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "nhwc",
    out: Any = None,
    out_dtype: Any = None,
    deterministic: bool = False,
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """Gradient of `conv` with respect to w (wgrad), from x and the gradient of its result.

    `weight_shape` is the shape of w in the order of `layout`.  A batch of 0 gives zeros.  `deterministic` requests
    bitwise equal results in every run.
    """
    geometry = stride, padding, dilation, groups, layout, _sizes(weight_shape)
    options = ("backward_weight", *geometry, _PASS, out_dtype, deterministic)
    operands = bound("backward_weight", x, dy, None, (), out)
    return _run("conv_backward_weight", (x, dy, weight_shape), operands, options, target, copy)


_CONV = _CALLER.front(
    conv, x="x", w="w", bias="bias", residual=("ds[0]", "ds[1]"), ds=None, out="out", copy=None, target=None
)  # fmt: skip
_CALLER.front(conv_backward_data, dy="dy", w="w", out="out", copy=None, target=None)
_CALLER.front(conv_backward_weight, x="x", dy="dy", out="out", copy=None, target=None)
public(conv, conv_backward_data, conv_backward_weight)
