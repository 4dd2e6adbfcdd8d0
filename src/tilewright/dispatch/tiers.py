"""Two of the tiers of selection: the winner of a measurement, and a kernel that takes the problem in padded copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dispatch.records import records
from tilewright.dispatch.refused import winner_of
from tilewright.dispatch.selection import Selection
from tilewright.ops.base import KernelSpec, Op
from tilewright.runtime.requests import Where


def by_record(
    op: Op,
    problem: Any,
    target: str,
    threads: int,
    candidates: tuple[KernelSpec, ...],
    registered: bool,
    where: Where | None,
) -> tuple[Selection | None, list[str]]:
    """The kernel a record names, and why each record of the problem that does not decide says nothing."""
    measured = op.measured_as(problem)
    unused = records().unused(op.name, measured, target, threads)
    record = records().lookup(op.name, measured, target, threads, whole=False)
    if record is None:
        return None, unused
    name = record.winner.name
    spec = winner_of(op, record, candidates, registered)
    if spec is None:
        why = f"the winner of its measurement, {name}, " + (
            "was not registered" if registered else "was written by another version, or is not legal any more"
        )
        return None, [why, *unused]
    reasons = [str(support) for support in op.supports(spec, problem)]
    if where is not None and where(spec):
        reasons.append(where(spec))
    if reasons:
        return None, [f"the winner of its measurement, {name}, refuses: {'; '.join(reasons)}", *unused]
    return Selection(spec, "measured", records().why(record), record.winner.seconds), unused


def in_copies(
    op: Op,
    problem: Any,
    specs: Sequence[KernelSpec],
    threads: int,
    estimate: Callable[[KernelSpec, Any, int], float],
) -> Selection | None:
    """The fastest kernel that serves the problem in padded copies."""
    padded = [(spec, larger) for spec in specs if (larger := op.padded(spec, problem)) is not None]
    if not padded:
        return None
    timed = [(estimate(spec, larger, threads), spec, larger) for spec, larger in padded]
    seconds, spec, larger = min(timed, key=lambda candidate: candidate[0])
    return Selection(spec, "padded", f"no kernel takes it as it is; run as {larger.describe()}", seconds, larger)
