"""What an op of PyTorch's runs below the dispatcher: the plain calls, with copies where kernels cannot read an operand.

PyTorch's own operators take any strides, and a compiler may hand an op others than were written down.  So a copy is
made where one is needed, as `copy="allow"` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.api import attention as attention_api
from tilewright.api import attention_backward as backward_api
from tilewright.api import conv as conv_api
from tilewright.api import gemm as gemm_api
from tilewright.runtime.calls import watching
from tilewright.runtime.copies import CopyNeeded

_NUMBERS = ("scale", "softcap")  # of which 0 is one


def copying(call: Callable[..., Any], *operands: Any, copies: bool = True, **options: Any) -> Any:
    if copies and watching():
        return call(*operands, copy="allow", **options)
    try:
        return call(*operands, **options)
    except CopyNeeded:
        if not copies:
            raise
        return call(*operands, copy="allow", **options)


def _named(name: str) -> str | None:
    return name or None


def added(d0: Any, d1: Any) -> tuple[Any, ...]:
    """The D tensors there are."""
    if d0 is None:
        return () if d1 is None else (d1,)
    return (d0,) if d1 is None else (d0, d1)


def gemm(
    a: Any, b: Any, c: Any = None, d0: Any = None, d1: Any = None, *, alpha: float = 1.0, beta: float | None = None,
    epilogue: str = "passthrough", out_dtype: Any = None, math: str = "", target: str = "", out: Any = None,
    copies: bool = True,
) -> Any:  # fmt: skip
    result = copying(
        gemm_api.gemm, a, b, c, alpha=alpha, beta=beta, ds=added(d0, d1), epilogue=epilogue, out_dtype=out_dtype,
        math=math, target=_named(target), out=out, copies=copies,
    )  # fmt: skip
    return result if c is None or out is not None else result.contiguous()  # a column-major C makes such a result


def gated_gemm(
    a: Any, gate: Any, up: Any, *, activation: str = "silu", out_dtype: Any = None, math: str = "", target: str = "",
    out: Any = None, copies: bool = True,
) -> Any:  # fmt: skip
    return copying(
        gemm_api.gated_gemm, a, gate, up, activation=activation, out_dtype=out_dtype, math=math,
        target=_named(target), out=out, copies=copies,
    )  # fmt: skip


def matmul(
    a: Any, b: Any, *, out_dtype: Any = None, math: str = "", target: str = "", out: Any = None, copies: bool = True
) -> Any:
    return copying(gemm_api.matmul, a, b, out_dtype=out_dtype, math=math, target=_named(target), out=out, copies=copies)


def spatial(numbers: Sequence[int]) -> Any:
    """One number for all dimensions, or one for each."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def paddings(numbers: Sequence[int], rank: int) -> Any:
    """One number for all dimensions, one for each, or before and after for each, one dimension behind the other."""
    if rank and len(numbers) == 2 * rank:
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return spatial(numbers)


def _geometry(first: Any, stride: Any, padding: Any, dilation: Any, groups: int, layout: str) -> dict[str, Any]:
    return {
        "stride": spatial(stride),
        "padding": paddings(padding, first.dim() - 2),
        "dilation": spatial(dilation),
        "groups": groups,
        "layout": layout,
    }


def conv(
    x: Any, w: Any, bias: Any = None, d0: Any = None, d1: Any = None, *, stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), groups: int = 1, layout: str = "nhwc",
    epilogue: str = "passthrough", out_dtype: Any = None, target: str = "", out: Any = None, copies: bool = True,
) -> Any:  # fmt: skip
    return copying(
        conv_api.conv, x, w, bias, ds=added(d0, d1), epilogue=epilogue, out_dtype=out_dtype, out=out, copies=copies,
        target=_named(target), **_geometry(x, stride, padding, dilation, groups, layout),
    )  # fmt: skip


def conv_backward_data(
    dy: Any, w: Any, input_shape: Sequence[int], *, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), groups: int = 1, layout: str = "nhwc", out_dtype: Any = None,
    deterministic: bool = False, target: str = "", out: Any = None,
) -> Any:  # fmt: skip
    return copying(
        conv_api.conv_backward_data, dy, w, input_shape, out_dtype=out_dtype, deterministic=deterministic, out=out,
        target=_named(target), **_geometry(dy, stride, padding, dilation, groups, layout),
    )  # fmt: skip


def conv_backward_weight(
    x: Any, dy: Any, weight_shape: Sequence[int], *, stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), groups: int = 1, layout: str = "nhwc", out_dtype: Any = None,
    deterministic: bool = False, target: str = "", out: Any = None,
) -> Any:  # fmt: skip
    return copying(
        conv_api.conv_backward_weight, x, dy, weight_shape, out_dtype=out_dtype, deterministic=deterministic, out=out,
        target=_named(target), **_geometry(x, stride, padding, dilation, groups, layout),
    )  # fmt: skip


def _filled(tensors: Sequence[Any], count: int) -> list[Any]:
    """So many tensors: the dispatcher leaves out those at the end that have their default."""
    return [*tensors, *[None] * (count - len(tensors))]


def _nonempty(options: dict[str, Any]) -> dict[str, Any]:
    """Options that say something: schemas have numbers and names for what plain calls leave out."""
    return {name: value for name, value in options.items() if value or (name in _NUMBERS and value is not None)}


def attention_options(seeds: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options of attention's schemas as plain calls have them."""
    numbers = options.pop("seed", ()) or ()
    window: tuple[Any, ...] = options.pop("window_left", -1), options.pop("window_right", -1)
    aligned = options.pop("window_from", "")
    if aligned:
        window = (*window, aligned)
    seed = seeds if seeds is not None else tuple(numbers) if len(numbers) == 2 else numbers[0] if numbers else None
    return {"window": None if window == (-1, -1) else window, "seed": seed, **_nonempty(options)}


def _attention(return_lse: bool, q: Any, k: Any, v: Any, *tensors: Any, out: Any = None, **options: Any) -> Any:
    (mask, bias, alibi_slopes, sink, seqlens_q, seqlens_k, cu_seqlens_q, cu_seqlens_k, block_table, page_indptr,
     page_last, q_scale, k_scale, v_scale, seeds) = _filled(tensors, 15)  # fmt: skip
    if page_indptr is not None:
        block_table = (page_indptr, block_table, page_last)
    return copying(
        attention_api.attention, q, k, v, mask=mask, bias=bias, alibi_slopes=alibi_slopes, sink=sink,
        seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        block_table=block_table, q_scale=q_scale, kv_scales=None if k_scale is None else (k_scale, v_scale),
        return_lse=return_lse, out=out, **attention_options(seeds, options),
    )  # fmt: skip


def attention(q: Any, k: Any, v: Any, *tensors: Any, **options: Any) -> Any:
    return _attention(False, q, k, v, *tensors, **options)


def attention_lse(q: Any, k: Any, v: Any, *tensors: Any, **options: Any) -> Any:
    return _attention(True, q, k, v, *tensors, **options)


attention_dynamic, attention_lse_dynamic = attention, attention_lse


def attention_backward(
    dout: Any, dlse: Any, out: Any, lse: Any, q: Any, k: Any, v: Any, *tensors: Any, dbias: bool = False,
    dsink: bool = False, dalibi: bool = False, **options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Six gradients, empty where they are not asked for."""
    mask, bias, alibi_slopes, sink, seqlens_q, seqlens_k, cu_seqlens_q, cu_seqlens_k, seeds = _filled(tensors, 9)
    results = copying(
        backward_api.attention_backward, dout, q, k, v, out, lse, dlse=dlse, mask=mask, bias=bias,
        alibi_slopes=alibi_slopes, sink=sink, seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, return_dbias=dbias, return_dsink=dsink, return_dalibi=dalibi,
        **attention_options(seeds, options),
    )  # fmt: skip
    rest = iter(results[3:])
    return (*results[:3], *(next(rest) if wanted else lse.new_empty((0,)) for wanted in (dbias, dsink, dalibi)))


def _append(
    cache_k: Any, cache_v: Any, k: Any, v: Any, q: Any, q_out: Any, tensors: Sequence[Any], options: dict[str, Any]
) -> Any:
    cache_seqlens, seqlens_new, block_table, cos, sin, k_scale, v_scale = _filled(tensors, 7)
    order = options.pop("rotary", "")
    return copying(
        attention_api.append_kv, cache_k, cache_v, k, v, cache_seqlens=cache_seqlens, seqlens_new=seqlens_new,
        block_table=block_table, rotary=None if cos is None else (cos, sin, order), q=q, q_out=q_out,
        kv_scales=None if k_scale is None else (k_scale, v_scale), **_nonempty(options),
    )  # fmt: skip


def append_kv(cache_k: Any, cache_v: Any, k: Any, v: Any, *tensors: Any, **options: Any) -> None:
    _append(cache_k, cache_v, k, v, None, None, tensors, options)


def append_kv_q(
    cache_k: Any, cache_v: Any, k: Any, v: Any, q: Any, *tensors: Any, q_out: Any = None, **options: Any
) -> Any:
    return _append(cache_k, cache_v, k, v, q, q_out, tensors, options).q
