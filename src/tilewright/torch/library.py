"""`torch.ops.tilewright.*`: schemas, and what serves each dispatch key.

An op that makes its result is functional; its overload `out` writes into a tensor and returns nothing, which is what
PyTorch can functionalize.  Results never share memory with operands.  Tensors come first, options by keyword: `padding`
has one number, one a dimension, or before and after for each; `seed` one or two numbers
(it is optional, because AOTInductor gives an op None for an empty list).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.errors import ProblemError
from tilewright.runtime import torch_arrays
from tilewright.torch import attention_gradients, fakes, gradients, kernels, native
from tilewright.torch.attention_gradients import of_attention
from tilewright.torch.required import PyTorchError, torch


def _library() -> Any:
    """The namespace of our ops, which one copy of this package can define."""
    try:
        return torch.library.Library("tilewright", "DEF")
    except RuntimeError as error:
        raise PyTorchError(
            "torch.ops.tilewright is defined already, by another copy of tilewright in this process",
            rule="torch-ops-twice",
            value="tilewright",
            remedy="import one copy only: look at tilewright.__file__ of both, and at sys.path",
        ) from error


LIBRARY = _library()
_KEYS = ("CPU", "CUDA")
_KINDS = (torch.Tensor, torch.nn.Parameter)

_GEMM = "Tensor a, Tensor b, Tensor? c=None, Tensor? d0=None, Tensor? d1=None, *, "
_GEMM_OPTIONS = (
    'float alpha=1.0, float? beta=None, str epilogue="passthrough", ScalarType? out_dtype=None, str math="", '
    'str target=""'
)
_GATED = "Tensor a, Tensor gate, Tensor up, *, "
_GATED_OPTIONS = 'str activation="silu", ScalarType? out_dtype=None, str math="", str target=""'
_MATMUL_OPTIONS = 'ScalarType? out_dtype=None, str math="", str target=""'
_GEOMETRY = 'int[] stride=[1], int[] padding=[0], int[] dilation=[1], int groups=1, str layout="nhwc", '
_CONV = "Tensor x, Tensor w, Tensor? bias=None, Tensor? d0=None, Tensor? d1=None, *, "
_CONV_OPTIONS = _GEOMETRY + 'str epilogue="passthrough", ScalarType? out_dtype=None, str target=""'
_BACKWARD_OPTIONS = _GEOMETRY + 'ScalarType? out_dtype=None, bool deterministic=False, str target=""'
_ATTENTION = (
    "Tensor q, Tensor k, Tensor v, Tensor? mask=None, Tensor? bias=None, Tensor? alibi_slopes=None, "
    "Tensor? sink=None, Tensor? seqlens_q=None, Tensor? seqlens_k=None, Tensor? cu_seqlens_q=None, "
    "Tensor? cu_seqlens_k=None, Tensor? block_table=None, Tensor? page_indptr=None, Tensor? page_last=None, "
    "Tensor? q_scale=None, Tensor? k_scale=None, Tensor? v_scale=None, Tensor? seeds=None, *, "
)
_ATTENTION_OPTIONS = (
    'str causal="", int window_left=-1, int window_right=-1, str window_from="", int sink_tokens=0, float? scale=None, '
    "float? softcap=None, float dropout_p=0.0, int[]? seed=None, int max_seqlen_q=0, int max_seqlen_k=0, "
    'int page_size=0, str kv_layout="", int scale_block=0, int num_splits=0, str layout="bshd", '
    'ScalarType? out_dtype=None, str target=""'
)
# Where a call is traced, lengths may be symbols, and C++ would make numbers of them where autograd begins: so those
# calls are ops of their own.  (Not overloads: PyTorch takes two that differ in this alone for one at the end.)
_ATTENTION_SYMBOLS = _ATTENTION_OPTIONS.replace("int max_seqlen", "SymInt max_seqlen")
_APPEND = "Tensor(a!) cache_k, Tensor(b!) cache_v, Tensor k, Tensor v, "
_APPEND_TABLES = (
    "Tensor? cache_seqlens=None, Tensor? seqlens_new=None, Tensor? block_table=None, Tensor? cos=None, "
    "Tensor? sin=None, Tensor? k_scale=None, Tensor? v_scale=None, *, "
)
_APPEND_OPTIONS = 'str rotary="", str kv_layout="", int scale_block=0, str layout="bshd", str target=""'
_OUT = ", Tensor(z!) out) -> ()"

SCHEMAS = {
    "gemm": f"({_GEMM}{_GEMM_OPTIONS}) -> Tensor",
    "gemm.out": f"({_GEMM}{_GEMM_OPTIONS}{_OUT}",
    "gated_gemm": f"({_GATED}{_GATED_OPTIONS}) -> Tensor",
    "gated_gemm.out": f"({_GATED}{_GATED_OPTIONS}{_OUT}",
    "matmul": f"(Tensor a, Tensor b, *, {_MATMUL_OPTIONS}) -> Tensor",
    "matmul.out": f"(Tensor a, Tensor b, *, {_MATMUL_OPTIONS}{_OUT}",
    "conv": f"({_CONV}{_CONV_OPTIONS}) -> Tensor",
    "conv.out": f"({_CONV}{_CONV_OPTIONS}{_OUT}",
    "conv_backward_data": f"(Tensor dy, Tensor w, SymInt[] input_shape, *, {_BACKWARD_OPTIONS}) -> Tensor",
    "conv_backward_data.out": f"(Tensor dy, Tensor w, SymInt[] input_shape, *, {_BACKWARD_OPTIONS}{_OUT}",
    "conv_backward_weight": f"(Tensor x, Tensor dy, SymInt[] weight_shape, *, {_BACKWARD_OPTIONS}) -> Tensor",
    "conv_backward_weight.out": f"(Tensor x, Tensor dy, SymInt[] weight_shape, *, {_BACKWARD_OPTIONS}{_OUT}",
    "attention": f"({_ATTENTION}{_ATTENTION_OPTIONS}) -> Tensor",
    "attention_dynamic": f"({_ATTENTION}{_ATTENTION_SYMBOLS}) -> Tensor",
    "attention.out": f"({_ATTENTION}{_ATTENTION_SYMBOLS}{_OUT}",
    "attention_lse": f"({_ATTENTION}{_ATTENTION_OPTIONS}) -> (Tensor, Tensor)",
    "attention_lse_dynamic": f"({_ATTENTION}{_ATTENTION_SYMBOLS}) -> (Tensor, Tensor)",
    "attention_backward": attention_gradients.SCHEMA,
    "append_kv": f"({_APPEND}{_APPEND_TABLES}{_APPEND_OPTIONS}) -> ()",
    "append_kv_q": f"({_APPEND}Tensor q, {_APPEND_TABLES}{_APPEND_OPTIONS}) -> Tensor",
    "append_kv_q.out": f"({_APPEND}Tensor q, {_APPEND_TABLES}{_APPEND_OPTIONS}, Tensor(z!) q_out) -> ()",
}


def op(name: str) -> Any:
    """The overload of a name of SCHEMAS."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.tilewright, base), overload or "default")


def traced_attention(name: str, options: dict[str, Any]) -> str:
    """The op for a call whose longest lengths may be symbols; zeros, which are none, do not matter."""
    return f"{name}_dynamic" if options.get("max_seqlen_q") or options.get("max_seqlen_k") else name


def kernel_of(name: str) -> Callable[..., Any]:
    """What an op runs; an overload that writes gives nothing back."""
    base, _, overload = name.partition(".")
    kernel: Callable[..., Any] = getattr(kernels, base)
    if not overload:
        return kernel

    def writes(*operands: Any, **options: Any) -> None:
        kernel(*operands, **options)

    return writes


def dispatched(name: str) -> Callable[..., Any]:
    """An op called through the dispatcher only where PyTorch must see the call: eager gradients need no second walk."""
    kernel = getattr(kernels, name)

    def call(*operands: Any, **options: Any) -> Any:
        if not torch_arrays.must_be_seen(operands):
            return kernel(*operands, **options)
        seen = traced_attention(name, options) if name == "attention_lse" else name
        if torch._C._functorch.peek_interpreter_stack() is None:
            return op(seen)(*operands, **options)
        from tilewright.torch import transforms

        return transforms.call(seen, *operands, **options)

    return call


class Calls:
    """The calls that gradients are made of."""

    gemm: Callable[..., Any]
    conv: Callable[..., Any]
    conv_backward_data: Callable[..., Any]
    conv_backward_weight: Callable[..., Any]
    attention_lse: Callable[..., Any]
    attention_backward: Callable[..., Any]


CALLS = Calls()


# -- gradients ---------------------------------------------------------------------------------------------------------


def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Operands, and results that the gradient reads: a program may write over any other."""
    results = output if isinstance(output, tuple) else (output,)
    if len(results) == 1 and not gradients.needs_result(keyword_only_inputs.get("epilogue", "PassThrough")):
        results = (None,)
    ctx.save_for_backward(*(value if isinstance(value, torch.Tensor) else None for value in inputs), *results)
    ctx.options = keyword_only_inputs
    if len(results) > 1:
        ctx.set_materialize_grads(False)  # what nobody uses of several results has no gradient


def _kept(ctx: Any, needed: Sequence[bool], count: int) -> tuple[tuple[Any, ...], Any, tuple[bool, ...]]:
    """`count` operands, the result, and whose gradients are wanted: the dispatcher leaves out operands at the end that
    have their default."""
    *tensors, result = ctx.saved_tensors
    return (*tensors, *(None,) * count)[:count], result, (*needed, *(False,) * count)[:count]


def _of_gemm(ctx: Any, de: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    tensors, e, wanted = _kept(ctx, needed, 5)
    return gradients.of_gemm(CALLS.gemm, de, tensors, e, wanted, ctx.options)[: len(needed)]


def _of_gated(ctx: Any, de: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    a, gate, up, _ = ctx.saved_tensors
    return gradients.of_gated(CALLS.gemm, de, (a, gate, up), needed, ctx.options)


def _of_matmul(ctx: Any, de: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    a, b, _ = ctx.saved_tensors
    return gradients.of_matmul(CALLS.gemm, de, a, b, needed, ctx.options["math"])


def _of_conv(ctx: Any, dy: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    tensors, y, wanted = _kept(ctx, needed, 5)
    return gradients.of_conv(CALLS, dy, tensors, y, wanted, ctx.options)[: len(needed)]


_GEOMETRY_NAMES = ("stride", "padding", "dilation", "groups", "layout")


def _of_backward_data(ctx: Any, dx: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    """dX = backward_data(dY, W) is linear in both: the gradient of dY is a convolution, that of W a backward_weight."""
    dy, w, *_ = ctx.saved_tensors
    geometry = {name: ctx.options[name] for name in _GEOMETRY_NAMES}
    of_dy = CALLS.conv(dx, w, **geometry) if needed[0] else None
    more = {**geometry, "deterministic": ctx.options["deterministic"]}
    of_w = CALLS.conv_backward_weight(dx, dy, w.shape, **more) if needed[1] else None
    return of_dy, of_w, None


def _of_backward_weight(ctx: Any, dw: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    x, dy, *_ = ctx.saved_tensors
    geometry = {name: ctx.options[name] for name in _GEOMETRY_NAMES}
    more = {**geometry, "deterministic": ctx.options["deterministic"]}
    of_x = CALLS.conv_backward_data(dy, dw, x.shape, **more) if needed[0] else None
    of_dy = CALLS.conv(x, dw, **geometry) if needed[1] else None
    return of_x, of_dy, None


def tangent_dropped() -> ProblemError:
    return ProblemError(
        "an operand carries a forward-mode tangent, which kernels would drop",
        rule="torch-transform",
        value="tangent",
        remedy="use reverse mode (torch.func.grad, vjp, jacrev), or give the primal: "
        "torch.autograd.forward_ad.unpack_dual(tensor).primal",
    )


def demand_no_tangents(operands: Sequence[Any]) -> None:
    """PyTorch drops the tangents of forward-mode gradients at an op that has no rule for them, silently."""
    forward = torch.autograd.forward_ad
    if forward._current_level < 0:
        return
    for operand in operands:
        if isinstance(operand, torch.Tensor) and forward.unpack_dual(operand).tangent is not None:
            raise tangent_dropped()


def _plain(operands: Sequence[Any]) -> bool:
    """Whether all tensors are PyTorch's own, in memory that kernels read."""
    first = operands[0]
    if not (first.is_cpu or first.is_cuda):
        return False
    return all(type(operand) in _KINDS for operand in operands if operand is not None and not isinstance(operand, list))


class Options:
    """Options that autograd hands on as they are."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


def _level_node(name: str, backward: Callable[..., Any]) -> Callable[..., Any]:
    """An op as a node of the level that a transform of `torch.func` differentiates: what is below that level goes on to
    the next ones, which may record too.

    `torch.library.register_autograd` makes no such nodes: PyTorch's transforms refuse the ops it has registered.
    """
    from torch._functorch.autograd_function import enable_single_level_autograd_function

    overload = op(name)
    defaults = {argument.name: argument.default_value for argument in overload._schema.arguments if argument.kwarg_only}

    class Node(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, options: Options, *operands: Any) -> Any:
            with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
                result = overload(*operands, **options.values)
            keep(ctx, operands, options.values, result)
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            gradient = gradients[0] if len(gradients) == 1 else gradients
            return None, *backward(ctx, gradient, ctx.needs_input_grad[1:])

    apply = super(torch.autograd.Function, Node).apply

    def call(*operands: Any, **options: Any) -> Any:
        with enable_single_level_autograd_function():
            return apply(Options({**defaults, **options}), *operands)

    return call


def _differentiated(operands: Sequence[Any]) -> bool:
    """Whether a transform of `torch.func` differentiates a call."""
    if torch._C._functorch.peek_interpreter_stack() is None or not torch.is_grad_enabled():
        return False
    return any(isinstance(operand, torch.Tensor) and operand.requires_grad for operand in operands)


def _register_gradient(name: str, backward: Callable[..., Any]) -> None:
    """As torch.library.register_autograd does it, with a look at tangents before."""
    from torch._library.autograd import Info, make_autograd_impl

    rule, level_node = Info(_by_needs(backward), keep), _level_node(name, backward)
    inner = make_autograd_impl(op(name), rule)
    below = make_autograd_impl(native.BelowAutograd(op(name)), rule)
    plain: Callable[..., Any] = getattr(kernels, name)

    def kernel(keys: Any, *operands: Any, **options: Any) -> Any:
        return call(partial(inner, keys), operands, options)

    def without_keys(*operands: Any, **options: Any) -> Any:
        return call(partial(below, torch._C._after_autograd_keyset), operands, options)

    def call(recorded: Callable[..., Any], operands: Sequence[Any], options: dict[str, Any]) -> Any:
        demand_no_tangents(operands)
        if _differentiated(operands):
            return level_node(*operands, **options)
        if _plain(operands) and not torch_arrays.must_be_seen(operands):
            return plain(*operands, **options)  # what the dispatcher would come to, without a second walk
        return recorded(*operands, **options)

    if not native.serve_autograd(name, op(name), without_keys):
        LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


def _by_needs(backward: Callable[..., Any]) -> Callable[..., Any]:
    def call(ctx: Any, *gradients: Any) -> Any:
        return backward(ctx, gradients[0] if len(gradients) == 1 else gradients, ctx.needs_input_grad)

    return call


def _of_attention_lse(ctx: Any, both: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    *tensors, out, lse = ctx.saved_tensors
    return of_attention(CALLS.attention_backward, tensors, (out, lse), both, needed, ctx.options)


def _of_attention(ctx: Any, dout: Any, needed: Sequence[bool]) -> tuple[Any, ...]:
    """This op gives no lse: the forward pass is made once more."""
    *tensors, _ = ctx.saved_tensors
    results = CALLS.attention_lse(*tensors, **ctx.options)
    return of_attention(CALLS.attention_backward, tensors, results, (dout, None), needed, ctx.options)


BACKWARD: dict[str, Callable[..., Any]] = {
    "gemm": _of_gemm,
    "gated_gemm": _of_gated,
    "matmul": _of_matmul,
    "conv": _of_conv,
    "conv_backward_data": _of_backward_data,
    "conv_backward_weight": _of_backward_weight,
    "attention": _of_attention,
    "attention_dynamic": _of_attention,
    "attention_lse": _of_attention_lse,
    "attention_lse_dynamic": _of_attention_lse,
    "attention_backward": attention_gradients.no_second_gradient,
}


# -- autocast ----------------------------------------------------------------------------------------------------------

# How many tensors of an op, from the first on, are factors or are added to products: autocast converts those.
_CAST = {"gemm": 5, "gated_gemm": 3, "matmul": 2, "conv": 5, "conv_backward_data": 2, "conv_backward_weight": 2,
         "attention": 3, "attention_dynamic": 3, "attention_lse": 3, "attention_lse_dynamic": 3}  # fmt: skip
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def cast(operands: Sequence[Any], count: int, dtype: Any) -> list[Any]:
    """The first operands as autocast wants them."""
    return [
        operand.to(dtype)
        if index < count and isinstance(operand, torch.Tensor) and operand.dtype in _NARROW
        else operand
        for index, operand in enumerate(operands)
    ]


def _autocast(name: str, device: str, key: Any) -> Callable[..., Any]:
    overload, count = op(name), _CAST[name]
    without = torch._C.DispatchKeySet(key)

    def call(*operands: Any, **options: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without):
            return overload(*cast(operands, count, torch.get_autocast_dtype(device)), **options)

    return call


# -- registration ------------------------------------------------------------------------------------------------------


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag,)
    for name, schema in SCHEMAS.items():
        LIBRARY.define(name + schema, tags=tags)
        kernel = kernel_of(name)
        if not native.serve(name, op(name), _KEYS, kernel):
            for key in _KEYS:
                LIBRARY.impl(name, kernel, key)
        base, _, overload = name.partition(".")
        fake = fakes.nothing if overload or base == "append_kv" else getattr(fakes, base)
        torch.library.register_fake(f"tilewright::{name}", fake, lib=LIBRARY)
    for name in ("gemm", "conv", "conv_backward_data", "conv_backward_weight", "attention_lse", "attention_backward"):
        setattr(CALLS, name, dispatched(name))
    for name, backward in BACKWARD.items():
        _register_gradient(name, backward)
    for name in _CAST:
        for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
            LIBRARY.impl(name, _autocast(name, device, getattr(torch._C.DispatchKey, key)), key)


_register()
