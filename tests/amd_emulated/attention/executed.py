"""The process that executes attention kernels: a line of JSON in, a line of JSON out.

Operands are the binding's own (NaN and -1 in everything no kernel may read), moved into fenced memory; results are
judged by the float64 reference and its one bound, which other tests hold against PyTorch and ONNX.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.session import Session
from tilewright.dtypes import BY_NUMPY_NAME
from tilewright.ops import op
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.loader import Kernel, load_kernel
from tilewright.runtime.requests import Sample

ATTENTION = binding("attention")


def _fenced(array: Any) -> Memory:
    """The bits of an array, as they lie, with fences around."""
    strides = [one // array.itemsize for one in array.strides]
    made = Memory(BY_NUMPY_NAME[array.dtype.name], array.shape, strides)
    made.put(array.view(f"u{array.itemsize}"))
    return made


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


def execute(kernel: Kernel, problem: AttentionProblem, seed: int, session: Session) -> dict[str, Any]:
    """One problem: refused, wrong (with the reason) or right."""
    sample = ATTENTION.sample(problem, seed)
    memory = [None if one is None else _fenced(one) for one in sample.operands]
    args = _filled(problem, sample, memory)
    started, first = time.perf_counter(), len(session.launches)
    refusal = kernel.refusal(args)
    if refusal:
        return {"problem": problem.describe(), "detail": f"`supports` says yes, the kernel no: {refusal}"}
    workspace = Memory.plain(int(kernel.workspace_bytes(args, 1)))
    status = kernel.launch(ctypes.addressof(args), workspace.address, None)
    session.raise_failure()
    detail, share = "" if status == 0 else f"launch answered {status}", 0.0
    launches = session.launches[first:]
    for slot, array, one in zip(ATTENTION.slots, sample.operands, memory, strict=True):
        if one is None or array is None:
            continue
        if slot.written:
            if not one.untouched_around():
                detail = detail or f"the kernel wrote outside {slot.name}"
            array.view(f"u{array.itemsize}")[...] = one.view
        elif not one.unchanged():
            detail = detail or f"the kernel changed {slot.name}"
    if not detail:
        found = ATTENTION.check(problem, sample)
        detail, share = "" if found.ok else found.detail, found.bound_ratio
    multiplies = problem.family in ("forward", "split")
    if multiplies and not detail and not sum(one["matrix_instructions"] for one in launches):
        detail = "no matrix instruction was executed"
    seconds = round(time.perf_counter() - started, 2)
    return {
        "problem": problem.describe(),
        "detail": detail,
        "of_bound": share,
        "seconds": seconds,
        "launches": launches,
    }


def answer(request: dict[str, Any], sessions: dict[str, Session]) -> list[dict[str, Any]]:
    spec: KernelSpec = op("attention").spec_from_dict(request["spec"])
    if spec.arch not in sessions:  # the fake runtime has one device, and tells the newest session of launches
        sessions[spec.arch] = Session(spec.arch, request["seed"])
    session = sessions[spec.arch]
    kernel = load_kernel(Path(request["library"]), spec)
    results = []
    for index, one in enumerate(request["problems"]):
        problem = op("attention").problem_from_dict(one)
        try:
            results.append(execute(kernel, problem, request["seed"] + index, session))
        except Exception as error:  # said in the result: other problems still tell something
            results.append({"problem": problem.describe(), "detail": f"{type(error).__name__}: {error}"})
    return results


def main() -> None:
    sessions: dict[str, Session] = {}
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line), sessions)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
