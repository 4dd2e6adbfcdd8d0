"""Views of arrays become the request of an append: new rows of keys and values behind those of a cache."""

from __future__ import annotations

from tilewright.errors import either
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings.attention import stages
from tilewright.runtime.bindings.attention.common import dense_strides
from tilewright.runtime.bindings.attention.operands import (
    Rows,
    bad,
    demand_heads,
    page_shape,
    rows_of,
    table,
    unit_rows,
)
from tilewright.runtime.bindings.attention.request import Call, demand_legal, page_room, scales_given
from tilewright.runtime.bindings.attention.stages import (
    BLOCK_TABLE,
    CACHE_K,
    CACHE_SEQLENS,
    CACHE_V,
    COS,
    Q_OUT,
    SEQLENS_NEW,
    SIN,
    K,
    OperandLayout,
    Q,
    V,
)  # fmt: skip
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.requests import Request, Result


def build(call: Call) -> Request:
    a, fields = call.a, call.problem
    k, v, cache_k, cache_v = (call.view(slot) for slot in (K, V, CACHE_K, CACHE_V))
    new = {name: rows_of(view, a.layout, False) for name, view in (("k", k), ("v", v))}
    fields |= {"family": "append", "batch": new["k"].batch, "seqlen_q": new["k"].rows,
             "heads_kv": new["k"].heads,
             "head_dim": new["k"].size, "head_dim_v": new["v"].size, "dtype_q": k.dtype, "dtype_kv": cache_k.dtype,
             "rotary": a.rotary, "heads_q": new["k"].heads}  # fmt: skip
    if new["k"].outer != new["v"].outer or new["k"].heads != new["v"].heads:
        message = f"v has shape {v.shape} and k {k.shape}: they differ in sequences, rows or heads"
        raise bad("shape-values", message, v.shape, "give as many values as keys")
    for view, other in ((v, k), (cache_v, cache_k)):
        if view.dtype != other.dtype:
            message = f"{view.what} holds {view.dtype}, and {other.what} {other.dtype}"
            raise bad("dtype-mix", message, view.dtype, "convert one of them")
    demand_heads(new)
    lie = _caches(call, cache_k, cache_v)
    for name, cache in lie.items():
        mine = new[name]
        if (cache.heads, cache.size) != (mine.heads, mine.size):
            message = f"cache_{name} has {cache.heads} heads of {cache.size}, and {name} {mine.heads} of {mine.size}"
            raise bad("shape-cache", message, (cache.heads, cache.size), "give a cache for such heads")
    table(call.view(CACHE_SEQLENS), 1, (fields["batch"],))
    fields["seqlens_k"] = True
    if call.views[SEQLENS_NEW] is not None:
        table(call.view(SEQLENS_NEW), 1, (fields["batch"],))
        fields["seqlens_q"] = True
    call.layout |= {"new_k": new["k"].strides, "new_v": new["v"].strides}
    scales_given(call)
    _rotary(call)
    if call.views[SEQLENS_NEW] is None and fields["batch"]:
        _demand_room(call)
    results = _rotated_q(call, lie)
    fields |= {f"{name}_strides": lies.strides for name, lies in lie.items()}
    problem = AttentionProblem(**fields)
    demand_legal(problem, call.target)
    return Request(OP, (stages.append(problem, OperandLayout(**call.layout)),), results)


def _caches(call: Call, cache_k: View, cache_v: View) -> dict[str, Rows]:
    a, fields = call.a, call.problem
    if call.views[BLOCK_TABLE] is None:
        lie = {name: rows_of(view, a.kv_layout or a.layout, False) for name, view in (("k", cache_k), ("v", cache_v))}
        fields["seqlen_k"] = lie["k"].rows
        if lie["k"].batch != fields["batch"]:
            message = f"the cache has {lie['k'].batch} sequences and there are rows of {fields['batch']}"
            raise bad("shape-batch", message, cache_k.shape, f"give a cache of {fields['batch']} sequences")
    else:
        pages = table(call.view(BLOCK_TABLE), 2)
        lie = {name: page_shape(view, name, a.kv_layout) for name, view in (("k", cache_k), ("v", cache_v))}
        fields |= {"pages": "vectorised" if a.kv_layout == "vectorised" else "strided", "page_lookup": "table",
                 "page_count": lie["k"].batch, "page_size": lie["k"].rows}  # fmt: skip
        fields["seqlen_k"] = page_room(fields, pages.shape[1] * lie["k"].rows)
        if pages.shape[0] != fields["batch"]:
            message = f"block_table has {pages.shape[0]} rows and there are {fields['batch']} sequences"
            raise bad("table-shape", message, pages.shape, f"give ({fields['batch']}, pages of a sequence)")
        call.layout["table"] = pages.strides[0] if pages.shape[0] > 1 else max(1, pages.shape[1])
    if lie["k"].outer != lie["v"].outer:
        raise bad("shape-values", f"cache_v has shape {cache_v.shape} and cache_k {cache_k.shape}", cache_v.shape,
                  "give caches with room for as many values as keys")  # fmt: skip
    return lie


def _rotary(call: Call) -> None:
    if call.a.rotary == "none":
        return
    cos, sin, fields = call.view(COS), call.view(SIN), call.problem
    if len(cos.shape) != 2 or cos.shape != sin.shape or cos.dtype != sin.dtype:
        message = f"cos is {cos.dtype} of shape {cos.shape} and sin {sin.dtype} of shape {sin.shape}"
        raise bad(
            "rotary-tables", message, sin.shape, "give two alike: a row for each position, a column for each pair"
        )
    if not cos.shape[1]:
        message = f"cos and sin have shape {cos.shape}: no pair is rotated"
        raise bad("rotary-tables", message, cos.shape, "give a column for each pair, or leave rotary out")
    for view in (cos, sin):
        unit_rows(view)
    if cos.shape[0] > 1 and cos.strides[0] != sin.strides[0]:
        message = f"the row stride of cos is {cos.strides[0]} and that of sin {sin.strides[0]}"
        loose = sin if sin.strides[0] != sin.shape[1] else cos
        raise copy_needed(loose.what, message, rule="rotary-tables", value=loose.strides)
    if cos.dtype not in ("fp32", fields["dtype_q"]):
        message = f"cos and sin hold {cos.dtype}, and k {fields['dtype_q']}"
        raise bad("rotary-tables", message, cos.dtype, f"give {either(('fp32', fields['dtype_q']))}")
    fields["rotary_dim"], fields["dtype_aux"] = 2 * cos.shape[1], cos.dtype
    call.layout["rotary"] = (cos.shape[0], cos.strides[0] if cos.shape[0] > 1 else max(1, cos.shape[1]))


def _demand_room(call: Call) -> None:
    """All rows are new: what has no room for them has none whatever the tables say, which a GPU's are not asked."""
    fields, rows = call.problem, call.problem["seqlen_q"]
    if rows > fields["seqlen_k"]:
        message = f"k has {rows} new rows, and the cache has room for {fields['seqlen_k']} of a sequence"
        raise bad("rows-fit", message, rows, "give a larger cache or fewer rows, or seqlens_new")
    if call.a.rotary != "none" and rows > call.layout["rotary"][0]:
        message = f"k has {rows} new rows, and cos and sin {call.layout['rotary'][0]}"
        raise bad("rotary-tables", message, rows, "give a row for each position of a sequence")


def _rotated_q(call: Call, lie: dict[str, Rows]) -> tuple[Result, ...]:
    q, fields = call.views[Q], call.problem
    if q is None:
        return ()
    rows = rows_of(q, call.a.layout, False)
    if (
        rows.outer != (fields["batch"], fields["seqlen_q"])
        or rows.size != fields["head_dim"]
        or q.dtype != fields["dtype_q"]
    ):
        message = f"q is {q.dtype} of shape {q.shape}, and k {fields['dtype_q']} of {fields['seqlen_q']} new rows"
        raise bad("shape-queries", message, q.shape, "give a query for each new key, with heads of its size and type")
    fields["heads_q"], fields["rotary_q"] = rows.heads, True
    demand_heads({"q": rows})
    lie["q"] = rows
    out = call.views[Q_OUT]
    lie["o"] = Rows.dense((*rows.outer, rows.heads, rows.size), call.a.layout)
    if out is not None:
        lie["o"] = rows_of(out, call.a.layout, False)
    if out is not None and (out.shape != q.shape or out.dtype != q.dtype):
        raise bad("shape-out", f"q_out is {out.dtype} of shape {out.shape}", out.shape, "give one like q")
    return (Result(Q_OUT, q.shape, dense_strides(q.shape), q.dtype),)
