"""The gradients of an attention as stages: arguments less pointers and scalars, and where those go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import OP
from tilewright.ops.attention_terms import Sizes
from tilewright.runtime.bindings.attention.args import Strides
from tilewright.runtime.bindings.attention.common import (
    SCORE_SLOTS,
    SEED_SLOT,
    SEQUENCE_SLOTS,
    ScoreLayout,
    dense_strides,
    lse_strides,
    offset,
    pointers,
    repeated,
    score_args,
    score_scalars,
)
from tilewright.runtime.bindings.attention_backward.args import BackwardArgs, ConvertArgs, DotArgs
from tilewright.runtime.requests import BETWEEN, Pointer, Request, Result, Scalar, Slot, StageRequest

SLOTS = (
    Slot("dout", optional=True),
    Slot("q", optional=True),
    Slot("k", optional=True),
    Slot("v", optional=True),
    Slot("out", optional=True),
    Slot("lse", optional=True),
    Slot("dlse", optional=True),
    *SCORE_SLOTS,
    *SEQUENCE_SLOTS,
    SEED_SLOT,
    Slot("given_delta", optional=True),  # results between stages have slots too, for a stage that is called by itself
    Slot("given_lse_log2", optional=True),
    Slot("given_dq_sums", optional=True),
    Slot("given_dk_sums", optional=True),
    Slot("given_dv_sums", optional=True),
    Slot("dq", written=True, optional=True),
    Slot("dk", written=True, optional=True),
    Slot("dv", written=True, optional=True),
    Slot("dbias", written=True, optional=True),
    Slot("dsink", written=True, optional=True),
    Slot("dalibi", written=True, optional=True),
    Slot("delta", written=True, optional=True),
    Slot("lse_log2", written=True, optional=True),
    Slot("dq_sums", written=True, optional=True),
    Slot("dk_sums", written=True, optional=True),
    Slot("dv_sums", written=True, optional=True),
)  # fmt: skip
NAMES = tuple(slot.name for slot in SLOTS)
AT = {name: index for index, name in enumerate(NAMES)}  # the slot of a name

_DOT: Any = DotArgs
_GRAD: Any = BackwardArgs
_CONVERT: Any = ConvertArgs


@dataclass(frozen=True, slots=True)
class OperandLayout(ScoreLayout):
    dbias: Sizes = ()
    dalibi: Sizes = ()  # strides of sequence and head
    lse: Sizes = ()
    dlse: Sizes = ()


def sums_shape(problem: AttentionBackwardProblem, name: str) -> Sizes:
    """Of fp32 accumulators between `grad` and `convert`: sequences, heads, prepared rows, elements."""
    p = problem
    return (*p.prepared("q" if name == "dq" else "k"), p.head_dim_v if name == "dv" else p.head_dim)


def _between(problem: AttentionBackwardProblem) -> dict[str, int]:
    """Results between stages, in bytes from the start of the workspace between them; its end is under ""."""
    places, at = {}, 0
    parts = {"delta": problem.prepared("q"), "lse_log2": problem.prepared("q")}
    parts |= {f"{name}_sums": sums_shape(problem, name) for name in problem.converted}
    for name, shape in parts.items():
        places[name] = at
        at += -(-4 * prod(shape) // 64) * 64
    return {**places, "": at}


def _pointers(kind: Any, slots: Mapping[str, str]) -> tuple[Pointer, ...]:
    """Pointers of a struct's fields to slots, both by name."""
    return pointers(kind, {field: AT[slot] for field, slot in slots.items()})


def _handed(kind: Any, fields: Mapping[str, str], between: Mapping[str, int] | None, is_input: bool) -> list[Pointer]:
    """Pointers to results between stages: into the workspace, or slots of their own where a stage is by itself."""
    if between is None:
        return list(_pointers(kind, {field: f"given_{name}" if is_input else name for field, name in fields.items()}))
    return [Pointer(offset(kind, field), BETWEEN, shift=between[name]) for field, name in fields.items()]


def _tables(p: AttentionBackwardProblem, keys: bool) -> dict[str, str]:
    tables = {"starts_q": "cu_seqlens_q"} if p.varlen else {}
    if p.seqlens_q:
        tables["lengths_q"] = "seqlens_q"
    if keys and p.varlen:
        tables["starts_k"] = "cu_seqlens_k"
    if keys and p.seqlens_k:
        tables["lengths_k"] = "seqlens_k"
    return tables


def _prepared_strides(p: AttentionBackwardProblem) -> tuple[int, int]:
    _, heads, rows = p.prepared("q")
    return (0 if p.varlen else heads * rows), rows


def dot(
    problem: AttentionBackwardProblem, layout: OperandLayout | None = None, between: Mapping[str, int] | None = None,
    cleared: int = 0,
) -> StageRequest:  # fmt: skip
    """`cleared`: bytes of the accumulator of dq between the stages that it sets to zero."""
    p, layout = problem, layout or OperandLayout()
    args = DotArgs(batch=p.batch, heads_q=p.heads_q, rows=p.seqlen_q, head_v=p.head_dim_v, total_rows=p.total_q)
    args.out_strides, args.dout_strides = Strides(*p.o_strides), Strides(*p.do_strides)
    args.lse_batch, args.lse_head = layout.lse or lse_strides(p)
    args.dlse_batch, args.dlse_head = layout.dlse or lse_strides(p)
    args.prepared_batch, args.prepared_head = _prepared_strides(p)
    slots = {"out": "out", "dout": "dout", "lse": "lse", **_tables(p, keys=False)}
    if p.dlse:
        slots["dlse"] = "dlse"
    if p.dsink:
        slots |= {"sink": "sink", "dsink": "dsink"}
    handed = _handed(_DOT, {"delta": "delta", "lse_log2": "lse_log2"}, between, is_input=False)
    if cleared:
        args.cleared_bytes = cleared
        handed += _handed(_DOT, {"cleared": "dq_sums"}, between, is_input=False)
    return StageRequest(p, args, (*_pointers(_DOT, slots), *handed))


def _sums_strides(p: AttentionBackwardProblem, name: str) -> Strides:
    _, heads, rows, size = sums_shape(p, name)
    return Strides(0 if p.varlen else heads * rows * size, size, rows * size)


def grad(
    problem: AttentionBackwardProblem, layout: OperandLayout | None = None, between: Mapping[str, int] | None = None,
    cleared: int = 0,
) -> StageRequest:  # fmt: skip
    """`cleared`: the stage before set the accumulator of dq to zero."""
    p, layout = problem, layout or OperandLayout()
    args = BackwardArgs(
        batch=p.batch, heads_q=p.heads_q, heads_kv=p.heads_kv, rows=p.seqlen_q, keys=p.seqlen_k, head_qk=p.head_dim,
        head_v=p.head_dim_v, total_rows=p.total_q, total_keys=p.total_k, window_left=p.window_left,
        window_right=p.window_right, bottom_right=int(p.align == "bottom_right"), sink_keys=p.sink_tokens,
        dkv_heads=p.dkv_heads, deterministic=int(p.deterministic), scale=p.head_dim**-0.5, dq_cleared=int(cleared > 0),
    )  # fmt: skip
    for name in ("q", "k", "v"):
        setattr(args, f"{name}_strides", Strides(*getattr(p, f"{name}_strides")))
    args.dout_strides = Strides(*p.do_strides)
    args.prepared_batch, args.prepared_head = _prepared_strides(p)
    args.lse_batch, args.lse_head = layout.lse or lse_strides(p)
    slots = {"q": "q", "k": "k", "v": "v", "dout": "dout", "lse": "lse", **_tables(p, keys=True)}
    sums = {}
    for name in ("dq", "dk", "dv"):
        if name in p.converted:
            sums[name] = f"{name}_sums"
            setattr(args, f"{name}_strides", _sums_strides(p, name))
        else:
            slots[name] = name
            setattr(args, f"{name}_strides", Strides(*getattr(p, f"{name}_strides")))
    _scores(args, p, layout, slots)
    handed = _handed(_GRAD, {"delta": "delta", "lse_log2": "lse_log2"}, between, is_input=True)
    handed += _handed(_GRAD, sums, between, is_input=False)
    return StageRequest(p, args, (*_pointers(_GRAD, slots), *handed), score_scalars(_GRAD, p, layout))


def _scores(args: BackwardArgs, p: AttentionBackwardProblem, layout: OperandLayout, slots: dict[str, str]) -> None:
    """What changes scores, and its gradients."""
    slots |= score_args(args, p, layout)
    if p.dbias:
        slots["dbias"] = "dbias"
        args.dbias_strides[:] = layout.dbias or repeated(p.bias_shape)
    if p.dalibi:
        slots["dalibi"] = "dalibi"
        args.dalibi_batch, args.dalibi_head = layout.dalibi or layout.alibi


def convert(
    problem: AttentionBackwardProblem, layout: OperandLayout | None = None, between: Mapping[str, int] | None = None,
    cleared: int = 0,
) -> StageRequest:  # fmt: skip
    p, layout = problem, layout or OperandLayout()
    args = ConvertArgs(
        batch=p.batch, heads_q=p.heads_q, heads_kv=p.heads_kv, rows=p.seqlen_q, keys=p.seqlen_k, head_qk=p.head_dim,
        head_v=p.head_dim_v, total_rows=p.total_q, total_keys=p.total_k, scale=p.head_dim**-0.5,
    )  # fmt: skip
    slots, sums = _tables(p, keys=True), {}
    for name in p.converted:
        operand = getattr(args, name)
        operand.parts = p.parts(name)
        operand.source_strides, operand.to_strides = _sums_strides(p, name), Strides(*getattr(p, f"{name}_strides"))
        slots[f"{name}.to"], sums[f"{name}.source"] = name, f"{name}_sums"
    handed = _handed(_CONVERT, sums, between, is_input=True)
    scalars = (Scalar(_CONVERT.scale.offset, 0),) if layout.scaled else ()
    return StageRequest(p, args, (*_pointers(_CONVERT, slots), *handed), scalars)


_MAKERS = {"dot": dot, "grad": grad, "convert": convert}


def _dense(name: str, shape: Sizes, dtype: str) -> Result:
    return Result(AT[name], shape, dense_strides(shape), dtype)


def gradients(problem: AttentionBackwardProblem, names: Sequence[str]) -> tuple[Result, ...]:
    """Results of q's, k's and v's shapes, dense."""
    p = problem
    return tuple(_dense(name, p.shape(name)[1:] if p.varlen else p.shape(name), p.dtype) for name in names)


def more_results(problem: AttentionBackwardProblem) -> tuple[Result, ...]:
    """What else is asked for, dense; slopes a head where nobody says that they are a sequence's too."""
    p = problem
    results = [_dense("dbias", p.bias_shape, "fp32")] if p.dbias else []
    results += [_dense("dsink", (p.heads_q,), "fp32")] if p.dsink else []
    return (*results, *((_dense("dalibi", (p.heads_q,), "fp32"),) if p.dalibi else ()))


def results(problem: AttentionBackwardProblem) -> tuple[Result, ...]:
    """What a stage by itself makes, dense."""
    p = problem
    if p.family == "dot":
        prepared = (_dense(name, p.prepared("q"), "fp32") for name in ("delta", "lse_log2"))
        return (*more_results(p), *prepared)
    if p.family == "convert":
        return gradients(p, p.converted)
    sums = (_dense(f"{name}_sums", sums_shape(p, name), "fp32") for name in p.converted)
    return (*gradients(p, [name for name in ("dq", "dk", "dv") if name not in p.converted]), *more_results(p), *sums)


def alone(problem: AttentionBackwardProblem) -> Request:
    """One kernel on dense operands of exactly this problem."""
    return Request(OP, (_MAKERS[problem.family](problem),), results(problem))


def whole(
    stages: Sequence[AttentionBackwardProblem], layout: OperandLayout, results: tuple[Result, ...], clears: bool = False
) -> Request:
    """The stages of a call (`Op.stages`), with the workspace between them; `clears`: `plans.dot_clears`."""
    problem = next(stage for stage in stages if stage.family == "grad")
    between = _between(problem)
    cleared = 4 * prod(sums_shape(problem, "dq")) if clears and "dq" in problem.converted else 0
    requests = tuple(_MAKERS[stage.family](stage, layout, between, cleared) for stage in stages)
    return Request(OP, requests, results, between_bytes=between[""])
