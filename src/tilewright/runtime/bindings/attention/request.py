"""Views of arrays become an attention's request: problem, stages, shapes of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.dataclass import NamedTuple, dataclass
from tilewright.dtypes import DTYPES
from tilewright.errors import ProblemError, shown
from tilewright.ops.attention.legality import problem_check
from tilewright.ops.attention.problem import OPERANDS, AttentionProblem
from tilewright.ops.attention.spec import INPUTS, OUTPUTS, SCALES, default_output
from tilewright.ops.attention.split_plans import counts, split_plans
from tilewright.ops.attention.split_plans import stages as stages_of
from tilewright.ops.attention_terms import FLOATS, Sizes
from tilewright.runtime.arrays import View, conversion_of, output_dtype
from tilewright.runtime.bindings.attention import stages
from tilewright.runtime.bindings.attention.common import dense_strides
from tilewright.runtime.bindings.attention.operands import (
    Rows,
    bad,
    broadcast,
    demand_heads,
    not_an_array,
    page_shape,
    rows_of,
    scale_strides,
    table,
)
from tilewright.runtime.bindings.attention.stages import (
    ALIBI,
    BIAS,
    BLOCK_TABLE,
    CU_SEQLENS_K,
    CU_SEQLENS_Q,
    INDPTR,
    K_SCALE,
    LAST,
    LSE,
    MASK,
    OUT,
    Q_SCALE,
    SEED,
    SEQLENS_K,
    SEQLENS_Q,
    SINK,
    V_SCALE,
    K,
    OperandLayout,
    Q,
    V,
)
from tilewright.runtime.devices import HOST
from tilewright.runtime.requests import Request, Result


class Attributes(NamedTuple):
    """What an attention depends on beside its operands."""

    problem: Any = None  # of operands that were made up: it says the rest
    family: str = "forward"
    layout: str = "bshd"
    kv_layout: str = ""
    align: str = "top_left"
    window: tuple[int, int] = (-1, -1)
    sink_tokens: int = 0
    scaled: bool = False
    softcap: bool = False
    dropout: bool = False
    page_size: int = 0
    longest: tuple[int, int] = (0, 0)  # rows and keys, of packed sequences or pages
    scale_block: int = 0
    num_splits: int = 0
    return_lse: bool = False
    out_dtype: Any = None
    rotary: str = "none"


_STRIDES = {name: f"{name}_strides" for name in OPERANDS}


@dataclass(slots=True)
class Call:
    """A call that becomes a request."""

    a: Attributes
    target: str
    views: Sequence[View | None]
    layout: dict[str, Any] = field(default_factory=dict)
    problem: dict[str, Any] = field(default_factory=dict)

    def view(self, slot: int) -> View:
        view = self.views[slot]
        if view is None:
            raise not_an_array(stages.SLOTS[slot].name, None)
        return view


def build(views: Sequence[Any], options: tuple[Any, ...], target: str) -> Request:
    """Shapes, strides and dtypes as one request, or the first contradiction as one error."""
    a = Attributes(*options)
    if a.problem is not None:
        return made_up(a.problem, target)
    call = Call(a, target, views)
    if a.family == "append":
        from tilewright.runtime.bindings.attention import append

        return append.build(call)
    return _forward(call)


def made_up(problem: AttentionProblem, target: str) -> Request:
    """The request of operands that `samples` made: dense, or as the problem says."""
    if problem.family != "forward":
        return stages.alone(problem)
    return _whole(problem, target, OperandLayout(), stages.results(problem))


def _whole(problem: AttentionProblem, target: str, layout: OperandLayout, results: tuple[Result, ...]) -> Request:
    """The call in the heuristic's number of parts, and how to have it in others."""
    arch = arch_by_name(target)
    first, *others = counts(problem, arch)
    request = stages.whole(stages_of(problem, first), layout, results)
    if not others:
        return request

    def in_others() -> list[Request]:
        return [stages.whole(each, layout, results) for each in list(split_plans(problem, arch).values())[1:]]

    return replace(request, others=in_others)


# -- forward -----------------------------------------------------------------------------------------------------------


def described(call: Call) -> dict[str, Rows]:
    """The layouts of q, k and v; what the call says of them and of scores is in its `problem` and `layout` then."""
    q, k, v = call.view(Q), call.view(K), call.view(V)
    _demand_dtypes(q, k, v)
    packed = call.views[CU_SEQLENS_Q] is not None
    lie = {"q": rows_of(q, call.a.layout, packed)}
    _sequences(call, lie["q"], packed)
    _keys(call, lie, packed)
    _heads(lie)
    _tables_given(call)
    call.problem |= _shape_words(call, lie)
    _scores(call)
    call.layout["scaled"] = call.a.scaled
    return lie


def _forward(call: Call) -> Request:
    a = call.a
    lie = described(call)
    packed, out = lie["q"].packed, call.views[OUT]
    order = (*lie["q"].outer, lie["q"].heads, lie["v"].size)
    shape = as_given(order, a.layout)
    if out is not None:
        if out.shape != shape:
            message = f"out has shape {out.shape}, and the result has {shape}"
            raise bad("shape-out", message, out.shape, f"give shape {shape}")
        lie["o"] = rows_of(out, a.layout, packed)
    else:
        lie["o"] = Rows.dense(order, a.layout)
    for name, each in lie.items():
        call.problem[_STRIDES[name]] = each.strides
    operands = (call.view(Q), call.view(K), call.view(V), out)
    odd = operands[0].place is not HOST and any(each.address % 16 for each in operands if each is not None)
    problem = AttentionProblem(**call.problem, aligned=not odd)
    demand_legal(problem, call.target)
    results = [Result(OUT, shape, dense_strides(shape), problem.dtype_out)]
    if a.return_lse:
        results.append(Result(LSE, problem.lse_shape, dense_strides(problem.lse_shape), "fp32"))
    return _whole(problem, call.target, OperandLayout(**call.layout), tuple(results))


def _demand_dtypes(q: View, k: View, v: View) -> None:
    for view in (q, k, v):
        if view.dtype not in INPUTS:
            held = DTYPES[view.dtype].numpy_name
            message = f"{view.what} has elements of type {held}, which attention does not take"
            raise bad("array-dtype", message, held, conversion_of(view, held, bytes_too=False))
    if k.dtype != v.dtype:
        message = f"k holds {k.dtype} and v {v.dtype}"
        raise bad("dtype-mix", message, v.dtype, f"convert one: both have the same type, such as {k.dtype}")


def _sequences(call: Call, rows: Rows, packed: bool) -> None:
    """Batch, rows and the tables that cut them."""
    a, fields = call.a, call.problem
    if packed:
        starts = table(call.view(CU_SEQLENS_Q), 1)
        fields["batch"] = starts.shape[0] - 1
        if fields["batch"] < 0:
            raise bad("table-shape", "cu_seqlens_q is empty", starts.shape, "give one start a sequence, and the end")
        fields["total_q"], fields["varlen"] = rows.rows, True
        fields["seqlen_q"] = _longest(a.longest[0], rows.rows)
    else:
        fields["batch"], fields["seqlen_q"] = rows.batch, rows.rows
        _demand_no_longest("max_seqlen_q", a.longest[0], "cu_seqlens_q")
        if call.views[CU_SEQLENS_K] is not None:
            raise bad(
                "starts-both", "cu_seqlens_k is given and cu_seqlens_q is not", "None", "give both, or none of them"
            )
    lengths = call.views[SEQLENS_Q]
    if lengths is not None:
        table(lengths, 1, (fields["batch"],))
        fields["seqlens_q"] = True


def _keys(call: Call, lie: dict[str, Rows], packed: bool) -> None:
    a, fields, k, v = call.a, call.problem, call.view(K), call.view(V)
    fields["dtype_kv"] = k.dtype
    if call.views[BLOCK_TABLE] is not None:
        _pages(call, lie)
    elif a.page_size:
        raise bad("page-size", f"page_size is {a.page_size}, and there is no block_table", a.page_size,
                  "give block_table and keys in pages, or leave page_size out")  # fmt: skip
    elif packed:
        if call.views[CU_SEQLENS_K] is None:
            remedy = "give cu_seqlens_k, or keys in pages"
            raise bad("starts-both", "cu_seqlens_q is given and cu_seqlens_k is not", "None", remedy)
        table(call.view(CU_SEQLENS_K), 1, (fields["batch"] + 1,))
        lie["k"], lie["v"] = (rows_of(view, a.kv_layout or a.layout, True) for view in (k, v))
        fields["total_k"] = lie["k"].rows
        fields["seqlen_k"] = _longest(a.longest[1], lie["k"].rows)
    else:
        layout = a.kv_layout or a.layout
        lie["k"], lie["v"] = rows_of(k, layout, False), rows_of(v, layout, False)
        fields["seqlen_k"] = lie["k"].rows
        _demand_no_longest("max_seqlen_k", a.longest[1], "cu_seqlens_k, or pages")
        if lie["k"].batch != fields["batch"]:
            message = f"k has {lie['k'].batch} sequences and q {fields['batch']}"
            raise bad("shape-batch", message, k.shape, f"give keys of {fields['batch']} sequences")
    if lie["k"].outer != lie["v"].outer:
        message = f"v has shape {v.shape} and k {k.shape}: they differ in sequences or keys"
        raise bad("shape-values", message, v.shape, "give as many values as keys")
    lengths = call.views[SEQLENS_K]
    if lengths is not None and fields.get("page_lookup") != "indices":
        table(lengths, 1, (fields["batch"],))
        fields["seqlens_k"] = True


def _pages(call: Call, lie: dict[str, Rows]) -> None:
    """Keys in pages: their layout, and how they are found."""
    a, fields = call.a, call.problem
    k, v, table_view = call.view(K), call.view(V), call.view(BLOCK_TABLE)
    if call.views[CU_SEQLENS_K] is not None:
        raise bad(
            "page-starts", "cu_seqlens_k is given, and keys are in pages", "cu_seqlens_k", "leave cu_seqlens_k out"
        )
    lie["k"], lie["v"] = (page_shape(view, name, a.kv_layout) for name, view in (("k", k), ("v", v)))
    fields["pages"] = "vectorised" if a.kv_layout == "vectorised" else "strided"
    fields["page_count"], fields["page_size"] = lie["k"].batch, lie["k"].rows
    if a.page_size and a.page_size != fields["page_size"]:
        message = f"page_size is {a.page_size}, and the pages of k have {fields['page_size']} slots"
        raise bad("page-size", message, a.page_size, "give pages of that size, or leave page_size out")
    if call.views[INDPTR] is not None:
        table(table_view, 1)
        table(call.view(INDPTR), 1, (fields["batch"] + 1,))
        table(call.view(LAST), 1, (fields["batch"],))
        room = table_view.shape[0] * fields["page_size"]
        fields["page_lookup"], fields["seqlen_k"] = "indices", page_room(fields, _longest(a.longest[1], room))
        call.layout["table"] = table_view.shape[0]
        if call.views[SEQLENS_K] is not None:
            remedy = "leave seqlens_k out, or give a block table"
            raise bad("page-lengths", "seqlens_k is given, and last page lengths say the same", "seqlens_k", remedy)
        return
    table(table_view, 2)
    if table_view.shape[0] != fields["batch"]:
        message = f"block_table has {table_view.shape[0]} rows and there are {fields['batch']} sequences"
        raise bad("table-shape", message, table_view.shape, f"give ({fields['batch']}, pages of a sequence)")
    if call.views[SEQLENS_K] is None:
        raise bad(
            "page-lengths", "block_table is given without seqlens_k", "None", "say how many keys each sequence has"
        )
    fields["page_lookup"] = "table"
    fields["seqlen_k"] = page_room(fields, _longest(a.longest[1], table_view.shape[1] * fields["page_size"]))
    call.layout["table"] = table_view.strides[0] if table_view.shape[0] > 1 else max(1, table_view.shape[1])


def _longest(stated: int, room: int) -> int:
    """Rows of the longest of packed sequences, or keys of the longest in pages: never more than there is room for, so
    that a bound of all calls (a model's context) may be given, and a problem makes room for no more than there can be.
    """
    return min(stated, room) if stated else room


def _demand_no_longest(name: str, stated: int, needs: str) -> None:
    """Of padded sequences the shape says how long the longest is."""
    if stated:
        message = f"{name} is {stated}, and sequences are padded: nothing reads it"
        raise bad("longest", message, stated, f"leave {name} out, or give {needs}")


def page_room(fields: Mapping[str, Any], keys: int) -> int:
    """Keys that a sequence has room for: none in a pool without pages."""
    return keys if fields["page_count"] else 0


def _heads(lie: dict[str, Rows]) -> None:
    demand_heads(lie)
    q, k, v = lie["q"], lie["k"], lie["v"]
    if q.size != k.size:
        message = f"heads of q have {q.size} elements and those of k {k.size}"
        raise bad("head-size", message, k.size, "give queries and keys with heads of one size; values may differ")
    if k.heads != v.heads:
        message = f"k has {k.heads} heads and v {v.heads}"
        raise bad("shape-values", message, v.heads, "give as many heads of values as of keys")


def _tables_given(call: Call) -> None:
    """Tables that no part of the call reads are a mistake."""
    for slot, needs in ((INDPTR, BLOCK_TABLE), (LAST, BLOCK_TABLE)):
        if call.views[slot] is not None and call.views[needs] is None:
            name = stages.SLOTS[slot].name
            raise bad(
                "page-lookup", f"{name} is given without page indices", name, "give block_table=(indptr, indices, last)"
            )


def _shape_words(call: Call, lie: dict[str, Rows]) -> dict[str, Any]:
    a, q = call.a, call.view(Q)
    out = call.views[OUT]
    wanted = None if a.out_dtype is None else output_dtype(a.out_dtype, OUTPUTS)
    if out is not None and wanted is not None and wanted != out.dtype:
        message = f"out holds {out.dtype}, but out_dtype asks for {wanted}"
        raise bad("out-dtype", message, out.dtype, "give one of the two, or make them agree")
    return {
        "heads_q": lie["q"].heads, "heads_kv": lie["k"].heads, "head_dim": lie["q"].size, "head_dim_v": lie["v"].size,
        "dtype_q": q.dtype, "dtype_out": out.dtype if out is not None else wanted or default_output(q.dtype),
        "align": a.align, "window_left": a.window[0], "window_right": a.window[1], "sink_tokens": a.sink_tokens,
        "softcap": a.softcap, "dropout": a.dropout, "return_lse": a.return_lse, "num_splits": a.num_splits,
    }  # fmt: skip


def _scores(call: Call) -> None:
    """Mask, bias, slopes, sinks and scales: what changes scores."""
    fields, layout = call.problem, call.layout
    full = (fields["batch"], fields["heads_q"], fields["seqlen_q"], fields["seqlen_k"])
    most = (*full[:2], call.a.longest[0] or full[2], call.a.longest[1] or full[3])
    mask, bias, slopes, sink = call.views[MASK], call.views[BIAS], call.views[ALIBI], call.views[SINK]
    if mask is not None:
        if mask.dtype not in ("bool", "uint8"):
            message = f"mask holds {mask.dtype}, and a mask says True where a key is seen"
            raise bad("mask-dtype", message, mask.dtype, "give bool, or what is added to scores as bias=")
        fields["mask_shape"], layout["mask"] = broadcast(mask, full, most)
    if bias is not None and slopes is not None:
        raise bad("bias-alibi", "bias and alibi_slopes are both given", "alibi_slopes", "add the slopes to the bias")
    if bias is not None:
        if bias.dtype not in FLOATS:
            raise bad("bias-dtype", f"bias holds {bias.dtype}", bias.dtype, "give fp32 or the type of q; bool as mask=")
        fields["bias"], fields["dtype_aux"] = "tensor", bias.dtype
        fields["bias_shape"], layout["bias"] = broadcast(bias, full, most)
    if slopes is not None:
        fields["bias"], layout["alibi"] = "alibi", _slopes(slopes, full)
    if sink is not None:
        vector(sink, fields["heads_q"], "one logit a query head")
        fields["sink"] = True
    scales_given(call)
    seed = call.views[SEED]
    if seed is not None:
        if seed.dtype != "int64" or seed.shape != (2,) or seed.strides != (1,):
            message = f"seed is {seed.dtype} of shape {seed.shape}"
            raise bad("seed", message, seed.shape, "give a whole number, (seed, offset), or both as two of int64")
        layout["seeded"] = True


def scales_given(call: Call) -> None:
    """Scales of q, k and v: kinds, strides, and blocks that somebody reads."""
    fields, block = call.problem, call.a.scale_block
    apart, unread = False, set()
    for name, slot in (("q", Q_SCALE), ("k", K_SCALE), ("v", V_SCALE)):
        view = call.views[slot]
        if view is None:
            continue
        heads, rows = ("heads_q", "seqlen_q") if name == "q" else ("heads_kv", "seqlen_k")
        loose = fields.get("varlen") or (
            rows == "seqlen_k" and fields.get("pages") and fields.get("family") != "append"
        )
        at = 0 if name == "q" else 1
        bound = ("max_seqlen_q", "max_seqlen_k")[at] if loose and not call.a.longest[at] else ""
        kind, strides = scale_strides(view, fields["batch"], fields[heads], fields[rows], block, bound)
        field = "q_scale" if name == "q" else "kv_scales"
        fields[field] = max(fields.get(field, "none"), kind, key=SCALES.index)
        call.layout.setdefault("scales", {})[name] = strides
        apart = apart or len(view.shape) == 3
        if kind == "none":  # of no rows: a kernel with scales of another kind would read the first
            unread.add(field)
    fields.update(dict.fromkeys(unread, "none"))
    if (call.views[K_SCALE] is None) != (call.views[V_SCALE] is None):
        raise bad("scales-both", "one of k and v has scales and the other none", "kv_scales", "give both")
    if block and not apart:
        raise bad("scale-block", f"scale_block is {shown(block)}, and there are no scales by block", shown(block),
                  "give scales of (sequences, heads, blocks), or leave scale_block out")  # fmt: skip
    fields["scale_block"] = block


def vector(view: View, size: int, what: str) -> None:
    if view.dtype != "fp32" or view.shape != (size,) or (size > 1 and view.strides != (1,)):
        message = f"{view.what} is {view.dtype} of shape {view.shape} and strides {view.strides}"
        raise bad(f"{view.what}-shape", message, view.shape, f"give {size} contiguous numbers of fp32: {what}")


def _slopes(view: View, full: Sizes) -> tuple[int, int]:
    if view.dtype != "fp32" or view.shape not in ((full[1],), full[:2]):
        message = f"alibi_slopes is {view.dtype} of shape {view.shape}"
        raise bad("alibi-shape", message, view.shape, f"give slopes of fp32, ({full[1]},) or ({full[0]}, {full[1]})")
    return (0, view.strides[0]) if len(view.shape) == 1 else (view.strides[0], view.strides[1])


def as_given(shape: Sizes, layout: str) -> Sizes:
    """(batch,) rows, heads, size in the order of the layout."""
    if layout == "bshd":
        return shape
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])


def demand_legal(problem: AttentionProblem, target: str) -> None:
    for broken in problem_check(problem, target):
        raise ProblemError(
            f"{problem.describe()}: {broken.message}", rule=broken.rule, value=problem, remedy=broken.remedy
        )
