"""A drawn attention in memory: operands, arguments, and what must come out.

Operands are the binding's own (NaN and -1 in everything no kernel may read), moved into fenced memory; results are
judged by the float64 reference and its one bound, which other tests hold against PyTorch and ONNX.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from tests.amd_emulated.attention.drawing import Drawn
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.oracle import Judgement
from tests.amd_emulated.proving import Call
from tilewright.dtypes import BY_NUMPY_NAME
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention_scores import Numbers, numbers_of
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.requests import Sample

ATTENTION = binding("attention")
ADDRESSED = ("q", "k", "v", "out", "cache_k", "cache_v", "q_out")  # what `aligned` of a problem speaks of


def prepare(spec: KernelSpec, one: Drawn) -> Call:
    sample = ATTENTION.sample(one.problem, one.seed)
    named = {slot.name: array for slot, array in zip(ATTENTION.slots, sample.operands, strict=True)}
    _valued(one, named)
    memory = {name: _fenced(name, array, one.problem) for name, array in named.items() if array is not None}
    written = tuple(slot.name for slot in ATTENTION.slots if slot.written and slot.name in memory)
    multiplies = spec.schedule.pipeline != "loops" and spec.signature.family in ("forward", "split")
    p = one.problem
    args = _filled(p, sample, [memory.get(slot.name) for slot in ATTENTION.slots])
    some = (
        p.seqlen_k > 0 and p.seqlen_q > 0 and not (p.varlen or p.seqlens_q or p.seqlens_k or p.bounded)
    )  # else some see none
    return Call(
        args,
        memory,
        written,
        dict,
        multiplies and some,
        judge=partial(_judged, one.problem, sample, memory),
        keep=[_seed_in_memory(args, numbers_of(p, sample.scalars))] if p.dropout and one.seed % 2 else [],
    )


def _fenced(name: str, array: Any, problem: AttentionProblem) -> Memory:
    """The bits of an array, as they lie, with fences around."""
    strides = [one // array.itemsize for one in array.strides]
    off = array.itemsize if not problem.aligned and name in ADDRESSED else 0
    kind = "int8" if array.dtype == np.bool_ else BY_NUMPY_NAME[array.dtype.name]
    made = Memory(kind, array.shape, strides, off)
    made.put(array.view(f"u{array.itemsize}"))
    return made


def _valued(one: Drawn, named: dict[str, Any]) -> None:
    """The numbers of a kind; what is NaN stays it."""
    q, k, v = named["q"], named["k"], named["v"]
    if one.problem.family not in ("forward", "split") or q is None or not q.size:
        return
    if one.values == "steep":
        q[...] = q * np.float32(12)
    elif one.values == "flat":
        q[...] = q * np.float32(0)
    elif one.values == "signs":
        for each in (q, k, v):
            each[...] = np.sign(each.astype(np.float32)).astype(each.dtype)
    elif one.values == "rising" and k.size:
        along = np.linspace(0.0, 4.0, k.shape[-3], dtype=np.float32).reshape(-1, 1, 1)
        q[...] = np.abs(q.astype(np.float32)).astype(q.dtype)
        k[...] = (np.abs(k.astype(np.float32)) * along).astype(k.dtype)


def _filled(problem: AttentionProblem, sample: Sample, memory: list[Memory | None]) -> ctypes.Structure:
    request = ATTENTION.dense(problem).stages[0]
    args = type(request.args).from_buffer_copy(request.args)
    start = ctypes.addressof(args)
    for one in request.pointers:
        at = memory[one.slot]
        ctypes.c_void_p.from_address(start + one.offset).value = at.address + one.shift if at is not None else None
    for scalar in request.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = sample.scalars[scalar.index]
    return args


def _seed_in_memory(args: ctypes.Structure, numbers: Numbers) -> Any:
    """Seed and offset where the kernel reads them as late as it runs; those of the call are others then."""
    both = np.array([numbers.seed, numbers.offset], np.uint64)
    args.seed_at, args.seed[0], args.offset[0] = both.ctypes.data, args.seed[0] + 1, args.offset[0] + 1
    return both


def _judged(problem: AttentionProblem, sample: Sample, memory: dict[str, Memory]) -> Judgement:
    for slot, array in zip(ATTENTION.slots, sample.operands, strict=True):
        if slot.written and array is not None:
            array.view(f"u{array.itemsize}")[...] = memory[slot.name].view
    found = ATTENTION.check(problem, sample)
    return Judgement(found.ok, found.max_error, found.bound_ratio, "" if found.ok else found.detail)
