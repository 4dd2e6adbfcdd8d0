"""A GEMM problem as a request: operands laid out exactly as it says, and a call's operands in copies of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import OPERANDS, GemmProblem
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.bindings.gemm.operands import D0, OUT, UP, A, B, C
from tilewright.runtime.bindings.gemm.request import ALPHA, BETA
from tilewright.runtime.lines import dense_strides
from tilewright.runtime.requests import Copy, Pointer, Request, Result, Scalar, Span, StageRequest

_FIELDS: Any = GemmArgs


def dense(problem: GemmProblem) -> Request:
    """The request of operands laid out exactly as the problem says, batch after batch."""
    p = problem
    args = GemmArgs(m=p.m, n=p.n, k=p.k, batch=p.batch)
    args.a_stride, args.b_stride, args.e_stride, args.c_stride = p.a_stride, p.b_stride, p.c_stride, p.c_stride
    args.a_batch_stride = 0 if p.broadcast_a else p.a_stride * (p.m if p.layout[0] == "r" else p.k)
    args.b_batch_stride = 0 if p.broadcast_b else p.b_stride * (p.k if p.layout[1] == "r" else p.n)
    args.e_batch_stride = args.c_batch_stride = p.c_stride * p.m
    for index in range(p.num_d):
        args.d_row_stride[index], args.d_col_stride[index] = p.n, 1
        args.d_batch_stride[index] = p.m * p.n
    pointers = [Pointer(_FIELDS.a.offset, A), Pointer(_FIELDS.b.offset, B), Pointer(_FIELDS.e.offset, OUT)]
    scalars = [Scalar(_FIELDS.alpha.offset, ALPHA)]
    if p.beta:
        pointers.append(Pointer(_FIELDS.c.offset, C))
        scalars.append(Scalar(_FIELDS.beta.offset, BETA))
    pointers += [Pointer(_FIELDS.d.offset + 8 * index, D0 + index) for index in range(p.num_d)]
    if p.dual:
        pointers.append(Pointer(_FIELDS.b_up.offset, UP))
    stage = StageRequest(replace(p), args, tuple(pointers), tuple(scalars))
    shape = (p.m, p.n) if p.batch == 1 else (p.batch, p.m, p.n)
    result = Result(OUT, shape, dense_strides(shape), p.dtype_c)
    return Request("gemm", (stage,), (result,), spans=_spans(p))


def _spans(problem: GemmProblem) -> tuple[Span, ...]:
    """What checks are shown: a kernel may need more workspace for operands that start at odd places."""
    p = problem
    a, b, e = (operand in p.odd_operands for operand in OPERANDS)
    types = {A: p.dtype_a, B: p.dtype_b, OUT: p.dtype_c, UP: p.dtype_b}
    odd = {A: a, B: b and not p.preshuffled, OUT: e, UP: b}
    return tuple(Span(probe=64 + (DTYPES[types[slot]].bytes if odd.get(slot) else 0)) for slot in range(UP + 1))


def copies(stage: StageRequest, larger: GemmProblem) -> StageRequest:
    """The stage of a larger problem on zero-padded dense copies; rows stay rows and columns stay columns.

    A packed B is read where it is.
    """
    packed = larger.variant == "preshuffle"
    shared = packed and larger.broadcast_b
    inner = replace(larger, a_stride=0, b_stride=0, c_stride=0, broadcast_a=False, broadcast_b=shared)
    padded_stage = dense(inner).stages[0]
    if packed:
        padded_stage.args.b_stride, padded_stage.args.b_batch_stride = stage.args.b_stride, stage.args.b_batch_stride
    p, q, args = stage.problem, inner, stage.args
    of_b = (p.k, p.n, q.k, q.n)
    sizes, letters = {"a": (p.m, p.k, q.m, q.k), "b": of_b, "b_up": of_b}, {"a": 0, "b": 1, "b_up": 1}
    copied: list[Copy] = []
    for index, pointer in enumerate(stage.pointers):
        name, strides, dtype = _field_at(pointer.offset, args, p)
        if packed and name == "b":
            continue
        rows, columns, more_rows, more_columns = sizes.get(name, (p.m, p.n, q.m, q.n))
        by_columns = p.layout[letters[name]] == "c" if name in sizes else False
        shape, padded = (rows, columns), (more_rows, more_columns)
        if by_columns:
            shape, padded = shape[::-1], padded[::-1]
        size = DTYPES[dtype].bytes
        known = next((copy for copy in stage.copies if copy.pointer == index), None)
        steps = known.strides if known is not None else tuple(step * size for step in strides)
        copied.append(
            Copy(index, (p.batch, *shape), steps, (q.batch, *padded), size, read=name != "e", written=name == "e")
        )
    # The template is the larger problem's; pointers keep the order and the loops of the call.
    return replace(stage, problem=inner, args=padded_stage.args, copies=tuple(copied))


def _field_at(offset: int, args: Any, p: GemmProblem) -> tuple[str, tuple[int, int, int], str]:
    """Which operand's pointer is at an offset, its strides (batch, slow, fast) and its element type."""
    for name, dtype in (("a", p.dtype_a), ("b", p.dtype_b), ("c", p.dtype_c), ("e", p.dtype_c)):
        if getattr(_FIELDS, name).offset == offset:
            return name, (getattr(args, f"{name}_batch_stride"), getattr(args, f"{name}_stride"), 1), dtype
    if offset == _FIELDS.b_up.offset:
        return "b_up", (args.b_batch_stride, args.b_stride, 1), p.dtype_b
    index = (offset - _FIELDS.d.offset) // 8
    return "d", (args.d_batch_stride[index], args.d_row_stride[index], args.d_col_stride[index]), p.dtype_d
