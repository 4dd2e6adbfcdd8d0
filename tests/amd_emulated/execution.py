"""A prepared call on a kernel: the library's own check and launch, fences, and the oracle.  Runs in the worker."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any

from tests.amd_emulated import oracle
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.proving import Call
from tilewright.runtime.loader import Kernel

RIGHT, WRONG, REFUSED = "right", "wrong", "refused"


@dataclass(slots=True)
class Outcome:
    label: str
    verdict: str
    detail: str = ""
    largest_error: float = 0.0
    of_bound: float = 0.0
    open: int = 0
    elements: int = 0
    seconds: float = 0.0
    launches: list[dict[str, Any]] = field(default_factory=list)


def run(kernel: Kernel, call: Call, label: str, session: Any, must_serve: bool) -> Outcome:
    """Ask and launch the kernel; what it serves must be right, and it must serve what `supports` says it does."""
    started, first = time.perf_counter(), len(session.launches)
    outcome = Outcome(label, WRONG, elements=sum(int(call.memory[name].view.size) for name in call.written))
    refusal, detail = _launch(kernel, call, session)
    if refusal:
        outcome.verdict = WRONG if must_serve else REFUSED
        outcome.detail = f"`supports` says yes, the kernel no: {refusal}" if must_serve else refusal
    else:
        outcome.launches = session.launches[first:]
        _judge(call, outcome, detail)
    outcome.seconds = round(time.perf_counter() - started, 3)
    return outcome


def _judge(call: Call, outcome: Outcome, detail: str) -> None:
    results = [call.memory[name] for name in call.written]
    changed = [
        name for name, one in call.memory.items() if not any(one is each for each in results) and not one.unchanged()
    ]
    outside = [name for name in call.written if not call.memory[name].untouched_around()]
    if detail:
        outcome.detail = detail
    elif changed:
        outcome.detail = f"the kernel changed {', '.join(changed)}"
    elif outside:
        outcome.detail = f"the kernel wrote outside {', '.join(outside)}"
    elif call.multiplies and not sum(each["matrix_instructions"] for each in outcome.launches):
        outcome.detail = "no matrix instruction was executed"
    else:
        _compare(call, outcome)
    outcome.verdict = WRONG if outcome.detail else RIGHT


def _compare(call: Call, outcome: Outcome) -> None:
    judged = {name: oracle.judge(one, call.memory[name].view) for name, one in call.expected().items()}
    if call.judge is not None:
        judged["results"] = call.judge()
    for name, found in judged.items():
        outcome.largest_error = max(outcome.largest_error, found.largest_error)
        outcome.of_bound = max(outcome.of_bound, found.of_bound)
        outcome.open += found.open
        if found.detail and not outcome.detail:
            outcome.detail = found.detail if len(call.written) == 1 else f"{name}: {found.detail}"


def _launch(kernel: Kernel, call: Call, session: Any) -> tuple[str, str]:
    """Pack, check and launch as the runtime does; why it was refused, or what went wrong."""
    at = ctypes.addressof(call.args)
    if kernel.pack is not None:
        assert call.packed is not None, "the kernel packs an operand, and the proof says nothing of one"
        packed = Memory.plain(int(kernel.packed_bytes(call.args)))
        call.keep.append(packed)
        code = kernel.pack(at, packed.address, None)
        session.raise_failure()
        if code != 0:
            return f"packing answers {code}", ""
        if not packed.untouched_around():
            return "", "pack wrote past its buffer"
        call.packed(packed.address)
    refusal = kernel.refusal(call.args)
    if refusal:
        return str(refusal), ""
    size = int(kernel.workspace_bytes(call.args, 1))
    workspace = Memory.plain(size)
    cleared = min(size, int(kernel.clear_bytes))
    workspace.view[:cleared] = 0
    status = kernel.launch(at, workspace.address, None)
    session.raise_failure()
    if status:
        return "", f"launch answered {status}"
    if not workspace.untouched_around():
        return "", "the kernel wrote outside its workspace"
    if workspace.view[:cleared].any():
        return "", "the kernel did not leave the start of its workspace as zeros"
    return "", ""
