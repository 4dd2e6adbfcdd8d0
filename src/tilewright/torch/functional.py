"""The calls of `tilewright` as PyTorch sees them: one op in a graph, or one node of autograd.

The plain calls come here where a gradient is recorded, or where PyTorch traces or transforms; its compiler traces these
functions in place of them.  So they are written in what it can trace, and whatever depends on values stays in the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ProblemError
from tilewright.ops.fused import GATES, GATES_BY_ACTIVATION, normal_epilogue, unknown_gate, with_added
from tilewright.runtime.bindings.attention.calls import demand_one_mask, demand_window
from tilewright.runtime.bindings.attention_backward.calls import demand_forward, demand_no_pages
from tilewright.torch import gradients, kernels, library, transforms
from tilewright.torch.attention_gradients import Attention
from tilewright.torch.gradients import ACTIVATIONS, linear_epilogue, needs_input, needs_result
from tilewright.torch.required import torch

__all__ = [
    "append_kv",
    "attention",
    "attention_backward",
    "conv",
    "conv_backward_data",
    "conv_backward_weight",
    "gated_gemm",
    "gemm",
    "matmul",
]

# Defaults of numbers are whole, here and in `sdpa`: with dynamic=True the compiler takes a fractional default for an
# input of the graph, finds that ops want a number, and compiles everything once more.
_PASS, _ALLOW = "passthrough", "allow"
_ops = torch.ops.tilewright


def _demand_tensors(**operands: Any) -> None:
    for name, operand in operands.items():
        if operand is not None and not isinstance(operand, torch.Tensor):
            kind = type(operand).__name__
            raise ProblemError(
                f"{name} is of type {kind}, and the call is differentiated or traced by PyTorch",
                rule="torch-trace",
                value=kind,
                remedy=f"give {name} as a tensor; packed operands and arrays are for plain calls under torch.no_grad()",
            )


def _recorded(*operands: Any) -> bool:
    """Whether a gradient will be asked for."""
    if not torch.is_grad_enabled():
        return False
    eager = not torch.compiler.is_compiling()  # the compiler knows no inference mode
    if eager and torch.is_inference_mode_enabled():
        return False
    if eager and transforms.transformed():
        return any(operand is not None and transforms.requires_grad(operand) for operand in operands)
    return any(operand is not None and operand.requires_grad for operand in operands)


def _eager(*operands: Any) -> bool:
    """Whether a call is made as it is, with nothing of PyTorch's around but autograd."""
    if torch.compiler.is_compiling():
        return False
    library.demand_no_tangents(operands)
    c = torch._C
    if c._len_torch_dispatch_stack() or c._is_tracing() or c._functorch.peek_interpreter_stack() is not None:
        return False
    return all(operand is None or type(operand) in (torch.Tensor, torch.nn.Parameter) for operand in operands)


def _demand_no_gradient(out: Any, *operands: Any, name: str = "out") -> None:
    """Of a call that writes."""
    if not torch.compiler.is_compiling():
        transforms.demand_none()
    if _recorded(out, *operands):
        raise ProblemError(
            f"{name} is given and a gradient is recorded: what is written in place has none",
            rule="array-grad",
            value=name,
            remedy=f"leave out {name}=, call under torch.no_grad(), or give detach() of what requires grad",
        )


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float, torch.SymFloat, torch.SymInt)) else float(value)


def _dtype(value: Any) -> Any:
    """A type as PyTorch names it; names and NumPy's types are for plain calls too."""
    if value is None or isinstance(value, torch.dtype):
        return value
    from tilewright.dtypes import BY_NUMPY_NAME, DTYPES
    from tilewright.runtime.torch_arrays import dtype_of

    name = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    known = dtype_of(name if name in DTYPES else BY_NUMPY_NAME.get(name, name))
    if known is None:
        raise ProblemError(
            f"out_dtype is {value!s:.80}, which PyTorch does not know",
            rule="out-dtype",
            value=str(value),
            remedy="give a torch.dtype, such as torch.float32",
        )
    return known


def _cast(count: int, operands: Sequence[Any]) -> list[Any]:
    """Operands as autocast wants them, where it is in force: gradients then have the types of the originals."""
    device = operands[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(operands)
    return library.cast(operands, count, torch.get_autocast_dtype(device))


def _call(name: str, *operands: Any, **options: Any) -> Any:
    """The op, or inside of a transform the node that it can take apart."""
    if not torch.compiler.is_compiling() and transforms.transformed():
        return transforms.call(name, *operands, **options)
    return library.op(name)(*operands, **options)


# -- GEMM --------------------------------------------------------------------------------------------------------------


class _Gemm(torch.autograd.Function):  # type: ignore[misc]
    """An eager product that records its gradient: two thirds cheaper than the way through the dispatcher."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, d0: Any, d1: Any, copy: str, options: dict[str, Any]) -> Any:
        e = kernels.gemm(a, b, c, d0, d1, copies=copy == _ALLOW, **options)
        ctx.save_for_backward(a, b, c, d0, d1, e if needs_result(options["epilogue"]) else None)
        ctx.options = options
        return e

    @staticmethod
    def backward(ctx: Any, de: Any) -> Any:
        *tensors, e = ctx.saved_tensors
        grads = gradients.of_gemm(library.CALLS.gemm, de, tuple(tensors), e, ctx.needs_input_grad, ctx.options)
        return *grads, None, None


class _Matmul(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, copy: str, options: dict[str, Any]) -> Any:
        ctx.save_for_backward(a, b)
        ctx.options = options
        return kernels.matmul(a, b, copies=copy == _ALLOW, **options)

    @staticmethod
    def backward(ctx: Any, de: Any) -> Any:
        a, b = ctx.saved_tensors
        grads = gradients.of_matmul(library.CALLS.gemm, de, a, b, ctx.needs_input_grad, ctx.options["math"])
        return *grads, None, None


class _Conv(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any, d0: Any, d1: Any, copy: str, options: dict[str, Any]) -> Any:
        y = kernels.conv(x, w, bias, d0, d1, copies=copy == _ALLOW, **options)
        ctx.save_for_backward(x, w, bias, d0, d1, y if needs_result(options["epilogue"]) else None)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        *tensors, y = ctx.saved_tensors
        grads = gradients.of_conv(library.CALLS, dy, tuple(tensors), y, ctx.needs_input_grad, ctx.options)
        return *grads, None, None


def _two(ds: Any) -> tuple[Any, Any]:
    if not isinstance(ds, (tuple, list)):
        raise ProblemError(
            "ds must be a tuple or list of arrays", rule="ds-type", value=type(ds).__name__, remedy="write ds=(d0,)"
        )
    if len(ds) > 2:
        raise ProblemError(
            f"{len(ds)} D tensors were given",
            rule="epilogue-d-count",
            value=len(ds),
            remedy="give at most 2 where PyTorch records gradients, traces or compiles",
        )
    if len(ds) == 2:
        return ds[0], ds[1]
    return (ds[0], None) if len(ds) == 1 else (None, None)


def _fused(op: str, function: Any, operands: tuple[Any, ...], out: Any, copy: str, options: dict[str, Any]) -> Any:
    """A product or a convolution with what is fused behind it; of the operands the last two are its D tensors.

    Where a gradient is recorded whose activation needs what it was applied to, PyTorch computes that activation.
    """
    if out is not None:
        _demand_no_gradient(out, *operands)
        getattr(_ops, op).out(*operands, out=out, **options)
        return out
    if not _recorded(*operands):
        return _call(op, *operands, **options)
    *first, d0, d1 = operands
    kind = normal_epilogue(options["epilogue"])
    if not needs_input(kind):
        return _recorded_fused(op, function, operands, copy, options)
    if kind == "MultiDMultiply" or kind in GATES:
        z = _recorded_fused(op, function, (*first, None, None), copy, {**options, "epilogue": _PASS})
        z = ACTIVATIONS[GATES[kind]](z) if kind in GATES else z
        return z * d0 if d1 is None else z * d0 * d1
    linear = linear_epilogue(kind, 0 if d0 is None else 1)
    return ACTIVATIONS[kind](_recorded_fused(op, function, operands, copy, {**options, "epilogue": linear}))


def _recorded_fused(op: str, function: Any, operands: tuple[Any, ...], copy: str, options: dict[str, Any]) -> Any:
    if _eager(*operands):
        return function.apply(*_cast(len(operands), operands), copy, options)
    return _call(op, *operands, **options)


def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = None, bias: Any = None, residual: Any = None,
    ds: Any = (), epilogue: str = _PASS, out: Any = None, out_dtype: Any = None, math: str = "", copy: str = "never",
    target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.gemm`, differentiable and traceable."""
    if bias is not None or residual is not None:
        epilogue, ds = with_added(epilogue, ds, bias=bias, residual=residual)
    d0, d1 = _two(ds)
    _demand_tensors(a=a, b=b, c=c, d0=d0, d1=d1, out=out)
    options = {
        "alpha": _number(alpha), "beta": None if beta is None else _number(beta), "epilogue": epilogue,
        "out_dtype": _dtype(out_dtype), "math": math or "", "target": target or "",
    }  # fmt: skip
    return _fused("gemm", _Gemm, (a, b, c, d0, d1), out, copy, options)


def gated_gemm(
    a: Any, gate: Any, up: Any, *, activation: str = "silu", out: Any = None, out_dtype: Any = None, math: str = "",
    copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.gated_gemm`, differentiable and traceable: where a gradient is recorded, as two products."""
    _demand_tensors(a=a, gate=gate, up=up, out=out)
    if not isinstance(activation, str) or activation not in GATES_BY_ACTIVATION:
        raise unknown_gate(activation)
    options = {"out_dtype": _dtype(out_dtype), "math": math or "", "target": target or ""}
    if out is not None:
        _demand_no_gradient(out, a, gate, up)
        _ops.gated_gemm.out(a, gate, up, activation=activation, out=out, **options)
        return out
    if _recorded(a, gate, up):
        products = [gemm(a, b, copy=copy, **options) for b in (gate, up)]
        return ACTIVATIONS[GATES[GATES_BY_ACTIVATION[activation]]](products[0]) * products[1]
    return _call("gated_gemm", a, gate, up, activation=activation, **options)


def matmul(
    a: Any, b: Any, *, out: Any = None, out_dtype: Any = None, math: str = "", copy: str = "never",
    target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.matmul`, differentiable and traceable."""
    _demand_tensors(a=a, b=b, out=out)
    options = {"out_dtype": _dtype(out_dtype), "math": math or "", "target": target or ""}
    if out is not None:
        _demand_no_gradient(out, a, b)
        _ops.matmul.out(a, b, out=out, **options)
        return out
    if _recorded(a, b) and _eager(a, b):
        return _Matmul.apply(*_cast(2, (a, b)), copy, options)
    return _call("matmul", a, b, **options)


# -- convolution -------------------------------------------------------------------------------------------------------


def _list(value: Any) -> list[Any]:
    """Numbers of any nesting, one behind the other: pairs (before, after) of a padding too."""
    if not isinstance(value, (tuple, list)):
        return [int(value)]
    flat: list[Any] = []
    for item in value:
        flat.extend(_list(item))
    return flat


def _geometry(stride: Any, padding: Any, dilation: Any, groups: Any, layout: str, target: str | None) -> dict[str, Any]:
    return {
        "stride": _list(stride), "padding": _list(padding), "dilation": _list(dilation), "groups": int(groups),
        "layout": layout, "target": target or "",
    }  # fmt: skip


def conv(
    x: Any, w: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    layout: str = "nhwc", residual: Any = None, ds: Any = (), epilogue: str = _PASS, out: Any = None,
    out_dtype: Any = None, copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.conv`, differentiable and traceable."""
    if residual is not None:
        epilogue, ds = with_added(epilogue, ds, residual=residual)
    d0, d1 = _two(ds)
    _demand_tensors(x=x, w=w, bias=bias, d0=d0, d1=d1, out=out)
    options = {**_geometry(stride, padding, dilation, groups, layout, target), "epilogue": epilogue,
               "out_dtype": _dtype(out_dtype)}  # fmt: skip
    return _fused("conv", _Conv, (x, w, bias, d0, d1), out, copy, options)


def _conv_gradient(name: str, operands: dict[str, Any], shape: Sequence[Any], out: Any, options: dict[str, Any]) -> Any:
    _demand_tensors(**operands, out=out)
    if out is None:
        return _call(name, *operands.values(), list(shape), **options)
    _demand_no_gradient(out, *operands.values())
    getattr(_ops, name).out(*operands.values(), list(shape), out=out, **options)
    return out


def conv_backward_data(
    dy: Any, w: Any, input_shape: Sequence[Any], *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, layout: str = "nhwc", out: Any = None, out_dtype: Any = None, deterministic: bool = False,
    copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.conv_backward_data`, differentiable and traceable."""
    options = _geometry(stride, padding, dilation, groups, layout, target)
    options |= {"out_dtype": _dtype(out_dtype), "deterministic": deterministic}
    return _conv_gradient("conv_backward_data", {"dy": dy, "w": w}, input_shape, out, options)


def conv_backward_weight(
    x: Any, dy: Any, weight_shape: Sequence[Any], *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, layout: str = "nhwc", out: Any = None, out_dtype: Any = None, deterministic: bool = False,
    copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.conv_backward_weight`, differentiable and traceable."""
    options = _geometry(stride, padding, dilation, groups, layout, target)
    options |= {"out_dtype": _dtype(out_dtype), "deterministic": deterministic}
    return _conv_gradient("conv_backward_weight", {"x": x, "dy": dy}, weight_shape, out, options)


# -- attention ---------------------------------------------------------------------------------------------------------


def _scale(value: Any, beside: Any) -> Any:
    """A scale as a tensor."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    return torch.full((), float(value), dtype=torch.float32, device=beside.device)


def _mask_and_bias(mask: Any, bias: Any, attn_mask: Any) -> tuple[Any, Any]:
    """`attn_mask` is either, by its type."""
    if attn_mask is None:
        return mask, bias
    is_mask = attn_mask.dtype == torch.bool
    demand_one_mask("mask" if is_mask else "bias", mask if is_mask else bias)
    return (attn_mask, bias) if is_mask else (mask, attn_mask)


def _seeds(seed: Any) -> tuple[Any, list[Any]]:
    """A tensor of seed and offset, or both as numbers."""
    if isinstance(seed, torch.Tensor) and seed.dim():
        return seed, []
    return None, [] if seed is None else _list(seed)


def _seen_keys(causal: Any, window: Any, sink_tokens: Any) -> dict[str, Any]:
    """What rows see, as options of an op."""
    if window is not None:
        demand_window(window)
    left, right = (-1, -1) if window is None else window[:2]
    return {
        "causal": "top_left" if causal is True else causal or "", "window_left": -1 if left is None else left,
        "window_right": -1 if right is None else right, "sink_tokens": sink_tokens or 0,
        "window_from": window[2] if window is not None and len(window) == 3 else "",
    }  # fmt: skip


def attention(
    q: Any, k: Any, v: Any, *, causal: Any = False, window: Any = None, scale: Any = None, mask: Any = None,
    bias: Any = None, attn_mask: Any = None, alibi_slopes: Any = None, softcap: Any = None, sink: Any = None,
    sink_tokens: Any = None, dropout_p: float = 0, seed: Any = None, seqlens_q: Any = None, seqlens_k: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None, max_seqlen_k: Any = None,
    block_table: Any = None, page_size: Any = None, kv_layout: Any = None, q_scale: Any = None, kv_scales: Any = None,
    scale_block: Any = None, num_splits: Any = None, layout: str = "bshd", return_lse: bool = False, out: Any = None,
    out_dtype: Any = None, copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.attention`, differentiable and traceable."""
    mask, bias = _mask_and_bias(mask, bias, attn_mask)
    indptr = last = None
    if isinstance(block_table, (tuple, list)):
        indptr, block_table, last = block_table
    k_scale, v_scale = (None, None) if kv_scales is None else kv_scales
    seeds, numbers = _seeds(seed)
    tensors = (
        q, k, v, mask, bias, alibi_slopes, sink, seqlens_q, seqlens_k, cu_seqlens_q, cu_seqlens_k, block_table, indptr,
        last, _scale(q_scale, q), _scale(k_scale, k), _scale(v_scale, v), seeds,
    )  # fmt: skip
    _demand_tensors(q=q, k=k, v=v, mask=mask, bias=bias, sink=sink, block_table=block_table, out=out)
    options = {
        **_seen_keys(causal, window, sink_tokens), "scale": scale, "softcap": softcap, "dropout_p": dropout_p,
        "seed": numbers, "max_seqlen_q": max_seqlen_q or 0, "max_seqlen_k": max_seqlen_k or 0,
        "page_size": page_size or 0, "kv_layout": kv_layout or "", "scale_block": scale_block or 0,
        "num_splits": num_splits or 0, "layout": layout, "out_dtype": _dtype(out_dtype), "target": target or "",
    }  # fmt: skip
    if out is None and _recorded(*tensors):
        if _eager(*tensors):
            both = Attention.apply(options, *_cast(3, tensors))
        else:
            both = _call(library.traced_attention("attention_lse", options), *tensors, **options)
        return both if return_lse else both[0]
    if return_lse:
        if out is not None:
            _demand_no_gradient(out, *tensors)
            raise ProblemError(
                "out and return_lse are given in a call that PyTorch traces",
                rule="torch-trace",
                value="return_lse",
                remedy="leave out out=, and copy the result where you want it",
            )
        return library.op(library.traced_attention("attention_lse", options))(*tensors, **options)
    if out is not None:
        _demand_no_gradient(out, *tensors)
        _ops.attention.out(*tensors, out=out, **options)
        return out
    return library.op(library.traced_attention("attention", options))(*tensors, **options)


def attention_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, causal: Any = False, window: Any = None,
    scale: Any = None, mask: Any = None, bias: Any = None, attn_mask: Any = None, alibi_slopes: Any = None,
    softcap: Any = None, sink: Any = None, sink_tokens: Any = None, dropout_p: float = 0, seed: Any = None,
    seqlens_q: Any = None, seqlens_k: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    max_seqlen_q: Any = None, max_seqlen_k: Any = None, block_table: Any = None, q_scale: Any = None,
    kv_scales: Any = None, kv_layout: Any = None, layout: str = "bshd", dlse: Any = None,
    deterministic: bool = False, return_dbias: bool = False, return_dsink: bool = False, return_dalibi: bool = False,
    copy: str = "never", target: str | None = None, **written: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """`tilewright.attention_backward`, traceable; it has no gradient of its own."""
    demand_no_pages(block_table=block_table, q_scale=q_scale, kv_scales=kv_scales)
    for name, value in written.items():
        if value is not None:
            tensors = (value, dout, dlse, out, lse, q, k, v, bias, attn_mask, alibi_slopes, sink)
            _demand_no_gradient(None, *(each for each in tensors if isinstance(each, torch.Tensor)), name=name)
            raise ProblemError(
                f"{name} is given in a call that PyTorch traces",
                rule="torch-trace",
                value=name,
                remedy=f"leave {name} out, or make the call outside of what is traced",
            )
    mask, bias = _mask_and_bias(mask, bias, attn_mask)
    seeds, numbers = _seeds(seed)
    demand_forward(dout=dout, q=q, k=k, v=v, out=out, lse=lse)
    _demand_tensors(dout=dout, dlse=dlse, out=out, lse=lse, q=q, k=k, v=v, mask=mask, bias=bias, sink=sink)
    switches = {"dbias": return_dbias, "dsink": return_dsink, "dalibi": return_dalibi}
    results = _call(
        "attention_backward", dout, dlse, out, lse, q, k, v, mask, bias, alibi_slopes, sink, seqlens_q, seqlens_k,
        cu_seqlens_q, cu_seqlens_k, seeds, **_seen_keys(causal, window, sink_tokens), scale=scale, softcap=softcap,
        dropout_p=dropout_p, seed=numbers, max_seqlen_q=max_seqlen_q or 0, max_seqlen_k=max_seqlen_k or 0,
        kv_layout=kv_layout or "", layout=layout, deterministic=deterministic, target=target or "", **switches,
    )  # fmt: skip
    return (*results[:3], *(result for result, wanted in zip(results[3:], switches.values(), strict=True) if wanted))


def append_kv(
    cache_k: Any, cache_v: Any, k: Any, v: Any, *, cache_seqlens: Any = None, seqlens_new: Any = None,
    block_table: Any = None, kv_layout: Any = None, rotary: Any = None, kv_scales: Any = None, scale_block: Any = None,
    q: Any = None, q_out: Any = None, layout: str = "bshd", copy: str = "never", target: str | None = None,
) -> Any:  # fmt: skip
    """`tilewright.append_kv`, traceable: the caches are written, and given back as they are."""
    from tilewright.api.attention import AppendedKV, AppendedKVAndQ

    cos, sin, order = (None, None, "") if rotary is None else rotary
    k_scale, v_scale = (None, None) if kv_scales is None else kv_scales
    _demand_tensors(cache_k=cache_k, cache_v=cache_v, k=k, v=v, q=q, cos=cos, sin=sin, q_out=q_out)
    _demand_no_gradient(None, cache_k, cache_v, k, v, q, cos, sin)
    tables = (cache_seqlens, seqlens_new, block_table, cos, sin, _scale(k_scale, k), _scale(v_scale, v))
    options = {"rotary": order, "kv_layout": kv_layout or "", "scale_block": scale_block or 0, "layout": layout,
               "target": target or ""}  # fmt: skip
    if q is None:
        _ops.append_kv.default(cache_k, cache_v, k, v, *tables, **options)
        return AppendedKV(cache_k, cache_v)
    if q_out is not None:
        _ops.append_kv_q.out(cache_k, cache_v, k, v, q, *tables, q_out=q_out, **options)
        return AppendedKVAndQ(cache_k, cache_v, q_out)
    rotated = _ops.append_kv_q.default(cache_k, cache_v, k, v, q, *tables, **options)
    return AppendedKVAndQ(cache_k, cache_v, rotated)
