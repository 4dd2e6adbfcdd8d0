"""A stage of attention's gradients in memory: operands, arguments, and what must come out.

Operands are the binding's own (NaN in everything no kernel may read, results poisoned), moved into fenced memory;
results are judged by the float64 reference and its one bound, which other tests hold against PyTorch.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from tests.amd_emulated.attention_backward.drawing import Drawn
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.oracle import Judgement
from tests.amd_emulated.proving import Call
from tilewright.dtypes import BY_NUMPY_NAME
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.requests import Sample

BINDING = binding("attention_backward")
ADDRESSED = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")  # what `aligned` of a problem speaks of


def prepare(spec: KernelSpec, one: Drawn) -> Call:
    p = one.problem
    sample = BINDING.sample(p, one.seed)
    named = {slot.name: array for slot, array in zip(BINDING.slots, sample.operands, strict=True)}
    memory = {name: _fenced(name, array, p) for name, array in named.items() if array is not None}
    args = _filled(p, sample, [memory.get(slot.name) for slot in BINDING.slots])
    multiplies = spec.schedule.pipeline not in ("loops", "rows") and spec.signature.family == "grad"
    # Else some block has nothing to multiply.
    some = p.seqlen_k > 0 and p.seqlen_q > 0 and not (p.varlen or p.seqlens_q or p.seqlens_k or p.bounded)
    written = tuple(slot.name for slot in BINDING.slots if slot.written and slot.name in memory)
    return Call(args, memory, written, dict, multiplies and some, judge=partial(_judged, p, sample, memory))


def _fenced(name: str, array: Any, problem: AttentionBackwardProblem) -> Memory:
    """The bits of an array, as they lie, with fences around."""
    array = array.view(np.int8) if array.dtype in (np.bool_, np.uint8) else array
    strides = [one // array.itemsize for one in array.strides]
    off = array.itemsize if not problem.aligned and name in ADDRESSED else 0
    made = Memory(BY_NUMPY_NAME[array.dtype.name], array.shape, strides, off)
    made.put(np.asarray(array).view(f"u{array.itemsize}"))
    return made


def _filled(problem: AttentionBackwardProblem, sample: Sample, memory: list[Memory | None]) -> ctypes.Structure:
    (request,) = BINDING.dense(problem).stages
    args = type(request.args).from_buffer_copy(request.args)
    start = ctypes.addressof(args)
    for one in request.pointers:
        at = memory[one.slot]
        ctypes.c_void_p.from_address(start + one.offset).value = at.address + one.shift if at is not None else None
    for scalar in request.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = sample.scalars[scalar.index]
    return args


def _judged(problem: AttentionBackwardProblem, sample: Sample, memory: dict[str, Memory]) -> Judgement:
    for slot, array in zip(BINDING.slots, sample.operands, strict=True):
        if slot.written and array is not None:
            array.view(f"u{array.itemsize}")[...] = memory[slot.name].view
    found = BINDING.check(problem, sample)
    return Judgement(found.ok, found.max_error, found.bound_ratio, "" if found.ok else found.detail)
