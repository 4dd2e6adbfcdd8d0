"""An attention problem as stages: arguments less pointers and scalars, and where those go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.ops.attention_terms import Sizes
from tilewright.runtime.bindings.attention.args import (
    SIZES,
    SIZES_AT,
    STRIDES,
    STRIDES_AT,
    WINDOW,
    WINDOW_AT,
    AppendArgs,
    AttentionArgs,
    CombineArgs,
    Strides,
)
from tilewright.runtime.bindings.attention.common import (
    SCORE_SLOTS,
    SEED_SLOT,
    SEQUENCE_SLOTS,
    STARTS,
    ScoreLayout,
    dense_strides,
    lse_strides,
    pointers,
    repeated,
    score_args,
    score_scalars,
)
from tilewright.runtime.requests import BETWEEN, Pointer, Request, Result, Slot, StageRequest

SLOTS = (
    Slot("q", optional=True, cast=True),  # a combination has none
    Slot("k", optional=True, cast=True),
    Slot("v", optional=True, cast=True),
    *SCORE_SLOTS,
    *SEQUENCE_SLOTS,
    Slot("cache_seqlens", optional=True, elements="int32",
         holds="0 to what leaves room for the new rows, in the cache and in rotary tables"),
    Slot("seqlens_new", optional=True, elements="int32", holds="0 to the rows that are given"),
    Slot("block_table", optional=True, elements="int32",
         holds="numbers of pages there are, from 0; of new rows no two in one slot"),
    Slot("page_indptr", optional=True, elements="int32", holds=f"{STARTS} to the number of page indices"),
    Slot("page_last", optional=True, elements="int32", holds="1 to the slots of a page"),
    Slot("q_scale", optional=True),
    Slot("k_scale", optional=True),
    Slot("v_scale", optional=True),
    SEED_SLOT,
    Slot("cos", optional=True),
    Slot("sin", optional=True),
    Slot("given_parts", optional=True),  # results between stages have slots too, for a stage that is called by itself
    Slot("given_lse", optional=True),
    Slot("out", written=True, optional=True),
    Slot("lse", written=True, optional=True),
    Slot("parts", written=True, optional=True),
    Slot("part_lse", written=True, optional=True),
    Slot("cache_k", written=True, optional=True),
    Slot("cache_v", written=True, optional=True),
    Slot("q_out", written=True, optional=True, twin="q"),
)  # fmt: skip
(
    Q, K, V, MASK, BIAS, ALIBI, SINK, CU_SEQLENS_Q, CU_SEQLENS_K, SEQLENS_Q, SEQLENS_K, CACHE_SEQLENS, SEQLENS_NEW,
    BLOCK_TABLE, INDPTR, LAST, Q_SCALE, K_SCALE, V_SCALE, SEED, COS, SIN, GIVEN_PARTS, GIVEN_LSE, OUT, LSE, PARTS,
    PART_LSE, CACHE_K,
    CACHE_V, Q_OUT,
) = range(len(SLOTS))  # fmt: skip

_AT = {slot.name: index for index, slot in enumerate(SLOTS)}

_ARGS: Any = AttentionArgs
_COMBINE: Any = CombineArgs
_APPEND: Any = AppendArgs


@dataclass(frozen=True, slots=True)
class OperandLayout(ScoreLayout):
    scales: Mapping[str, Sizes] = field(default_factory=dict)  # of q, k and v: strides of sequence, head, block
    table: int = 0  # entries of a row of the page table; of all, with indptr
    new_k: Sizes = ()  # of rows that are appended
    new_v: Sizes = ()
    rotary: tuple[int, int] = (0, 0)  # rows of the tables, and from one to the next


def scale_shape(problem: AttentionProblem, name: str) -> Sizes:
    """The shape of an operand's scales: sequences, heads, blocks."""
    kind = problem.q_scale if name == "q" else problem.kv_scales
    heads = problem.heads_q if name == "q" else problem.heads_kv
    if kind == "tensor":
        return (1, 1, 1)
    if kind == "head":
        return (1, heads, 1)
    rows = problem.seqlen_q if name == "q" else problem.seqlen_k
    return (problem.batch, heads, max(1, -(-rows // max(1, problem.scale_block))))


def part_shapes(problem: AttentionProblem) -> tuple[Sizes, Sizes]:
    """Of the parts and their lse, as the stages hand them on."""
    p = problem
    return (p.num_splits, *p.shape("o")[:3], p.head_dim_v), (p.num_splits, *p.lse_shape)


def _tables(problem: AttentionProblem) -> dict[str, int]:
    """The tables a problem has, by the field that leads there."""
    p = problem
    tables = {"starts_q": CU_SEQLENS_Q} if p.varlen else {}
    if p.seqlens_q:
        tables["lengths_q"] = SEQLENS_Q
    if p.family == "combine":
        return tables
    if p.varlen and p.pages == "none":
        tables["starts_k"] = CU_SEQLENS_K
    if p.seqlens_k:
        tables["lengths_k"] = SEQLENS_K
    if p.pages != "none":
        tables["pages.table"] = BLOCK_TABLE
    if p.page_lookup == "indices":
        tables |= {"pages.indptr": INDPTR, "pages.last": LAST}
    return tables


def _page_args(args: Any, problem: AttentionProblem, layout: OperandLayout) -> None:
    if problem.pages == "none":
        return
    args.pages.size, args.pages.count = problem.page_size, problem.page_count
    entries = problem.sequence_pages * (problem.batch if problem.page_lookup == "indices" else 1)
    args.pages.stride = layout.table or entries


def forward(problem: AttentionProblem, layout: OperandLayout | None = None, between: bool = False) -> StageRequest:
    """The kernel of a forward problem, or of the parts of one; `between`: parts go into the workspace."""
    p, layout = problem, layout or OperandLayout()
    args = AttentionArgs(splits=max(1, p.num_splits) if p.family == "split" else 1, scale=p.head_dim**-0.5)
    # Adjacent numbers at once: one of them by its name takes as long as all.
    SIZES.pack_into(
        args, SIZES_AT, p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, p.head_dim_v, p.total_q,
        p.total_k,
    )  # fmt: skip
    STRIDES.pack_into(args, STRIDES_AT, *p.q_strides, *p.k_strides, *p.v_strides, *p.o_strides, *lse_strides(p))
    WINDOW.pack_into(
        args, WINDOW_AT, p.window_left, p.window_right, p.align == "bottom_right", p.sink_tokens
    )  # fmt: skip
    slots = {"q": Q, "k": K, "v": V, **_tables(p)}
    _page_args(args, p, layout)
    slots |= {field: _AT[name] for field, name in score_args(args, p, layout).items()}
    if p.sink:
        slots["sink"] = SINK
    _scale_args(args, p, layout, slots)
    places = (*pointers(_ARGS, slots), *_results_of(args, p, between))
    return StageRequest(p, args, places, score_scalars(_ARGS, p, layout))


def _results_of(args: AttentionArgs, p: AttentionProblem, between: bool) -> Sequence[Pointer]:
    """Where o and lse go; of parts into the workspace or slots of their own."""
    if p.family != "split":
        return pointers(_ARGS, {"o": OUT, **({"lse": LSE} if p.return_lse else {})})
    parts, sums = part_shapes(p)
    args.o_split, args.lse_split = dense_strides(parts)[0], dense_strides(sums)[0]
    if not between:
        return pointers(_ARGS, {"o": PARTS, "lse": PART_LSE})
    return [Pointer(_ARGS.o.offset, BETWEEN), Pointer(_ARGS.lse.offset, BETWEEN, shift=_bytes(parts))]


def _bytes(shape: Sizes) -> int:
    """Of fp32, to a whole line of memory."""
    count = 4
    for size in shape:
        count *= size
    return -(-count // 64) * 64


def _scale_args(
    args: AttentionArgs | AppendArgs, p: AttentionProblem, layout: OperandLayout, slots: dict[str, int]
) -> None:
    for name, kind, slot in (("q", p.q_scale, Q_SCALE), ("k", p.kv_scales, K_SCALE), ("v", p.kv_scales, V_SCALE)):
        if kind == "none":
            continue
        slots[f"{name}_scales.at"] = slot
        scales = getattr(args, f"{name}_scales")
        scales.batch, scales.head, scales.block = layout.scales.get(name) or repeated(scale_shape(p, name))
        scales.block_rows = p.scale_block if kind == "block" else 0


def combine(problem: AttentionProblem, between: bool = False) -> StageRequest:
    p = problem
    parts, sums = part_shapes(p)
    strides = dense_strides(parts)
    args = CombineArgs(
        batch=p.batch, heads_q=p.heads_q, rows=p.seqlen_q, head_v=p.head_dim_v, splits=p.num_splits,
        total_rows=p.total_q,
        part_strides=Strides(0 if p.varlen else strides[1], strides[2], strides[3]),
        o_strides=Strides(*p.o_strides), part_split=strides[0], part_lse_split=dense_strides(sums)[0],
    )  # fmt: skip
    args.part_lse_batch, args.part_lse_head = args.lse_batch, args.lse_head = lse_strides(p)
    slots = {"o": OUT, **({"lse": LSE} if p.return_lse else {}), **_tables(p)}
    sources: Sequence[Pointer] = (
        Pointer(_COMBINE.parts.offset, BETWEEN),
        Pointer(_COMBINE.part_lse.offset, BETWEEN, shift=_bytes(parts)),
    )
    if not between:
        sources = pointers(_COMBINE, {"parts": GIVEN_PARTS, "part_lse": GIVEN_LSE})
    return StageRequest(p, args, (*pointers(_COMBINE, slots), *sources))


def append(problem: AttentionProblem, layout: OperandLayout | None = None) -> StageRequest:
    p, layout = problem, layout or OperandLayout()
    args = AppendArgs(
        batch=p.batch, heads_q=p.heads_q, heads_kv=p.heads_kv, rows=p.seqlen_q, keys=p.seqlen_k, head_qk=p.head_dim,
        head_v=p.head_dim_v, rotary=p.rotary_dim,
    )  # fmt: skip
    slots = {"k": K, "v": V, "cache_k": CACHE_K, "cache_v": CACHE_V, "lengths": CACHE_SEQLENS}
    for name, size in (("k", p.head_dim), ("v", p.head_dim_v)):
        new = getattr(layout, f"new_{name}") or (p.seqlen_q * p.heads_kv * size, p.heads_kv * size, size)
        setattr(args, f"{name}_strides", Strides(*new))
        setattr(args, f"cache_{name}_strides", Strides(*getattr(p, f"{name}_strides")))
    if p.rotary_q:
        slots |= {"q": Q, "q_out": Q_OUT}
        args.q_strides, args.q_out_strides = Strides(*p.q_strides), Strides(*p.o_strides)
    if p.seqlens_q:
        slots["lengths_new"] = SEQLENS_NEW
    if p.pages != "none":
        slots["pages.table"] = BLOCK_TABLE
    _page_args(args, p, layout)
    if p.rotary != "none":
        slots |= {"cos": COS, "sin": SIN}
        args.table_rows, args.table_stride = layout.rotary if any(layout.rotary) else (p.seqlen_k, p.rotary_dim // 2)
    _scale_args(args, p, layout, slots)
    return StageRequest(p, args, pointers(_APPEND, slots))


def results(problem: AttentionProblem) -> tuple[Result, ...]:
    """What a stage by itself makes, dense."""
    p = problem
    if p.family == "split":
        parts, sums = part_shapes(p)
        return (
            Result(PARTS, parts, dense_strides(parts), "fp32"),
            Result(PART_LSE, sums, dense_strides(sums), "fp32"),
        )
    if p.family == "append":
        return (Result(Q_OUT, p.shape("o"), dense_strides(p.shape("o")), p.dtype_q),) if p.rotary_q else ()
    shape = p.shape("o")[1:] if p.varlen else p.shape("o")
    results = [Result(OUT, shape, dense_strides(shape), p.dtype_out)]
    if p.return_lse:
        results.append(Result(LSE, p.lse_shape, dense_strides(p.lse_shape), "fp32"))
    return tuple(results)


def alone(problem: AttentionProblem) -> Request:
    """One kernel on dense operands of exactly this problem."""
    maker = combine if problem.family == "combine" else append if problem.family == "append" else forward
    return Request(OP, (maker(problem),), results(problem))


def whole(stages: Sequence[AttentionProblem], layout: OperandLayout, results: tuple[Result, ...]) -> Request:
    """The stages of a call (`Op.stages`), with the workspace between them where there are several."""
    if len(stages) == 1:
        return Request(OP, (forward(stages[0], layout),), results)
    part, last = stages
    parts, sums = part_shapes(part)
    both = forward(part, layout, between=True), combine(last, between=True)
    return Request(OP, both, results, between_bytes=_bytes(parts) + _bytes(sums))
