"""By which split plan a problem is computed (`Op.split_plans`): the heuristic's, until another was measured as faster.

The stages of a plan are measured one by one (`tilewright bench OP --split-plans --save`); its time is their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright import settings
from tilewright.dispatch.records import records
from tilewright.ops.base import Op
from tilewright.runtime.host import thread_count
from tilewright.runtime.requests import Request

GAIN = 0.02  # part of the heuristic's time that another plan must save


def chosen(op: Op, problem: Any, target: str, threads: int) -> tuple[tuple[Any, ...], str]:
    """The stages to take, and what is to be said of the choice; nothing where there was none."""
    known = op.split_plans(problem, target)
    names, plans = list(known), [tuple(stages) for stages in known.values()]
    if len(plans) == 1:
        return plans[0], ""
    times = _times(op, plans, target, threads)
    best = fastest(times)
    shown = [f"{name} {seconds * 1e6:.1f} us" for name, seconds in zip(names, times, strict=True) if seconds]
    why = f"measured: {', '.join(shown)}" if shown else "no other plan was measured (`bench --split-plans --save`)"
    return plans[best], f"{names[best]} by {'measurement' if best else 'heuristic'}; {why}"


def stages_of(op: Op, problem: Any, target: str, threads: int) -> tuple[Any, ...]:
    """The stages to take: without measurements those of the heuristic, and no other plan is worked out."""
    if not settings.current().measure or records().empty:
        return tuple(op.stages(problem, target))
    return chosen(op, problem, target, threads)[0]


def request_of(op: Op, request: Request, target: str) -> Request:
    """The call in the stages to take."""
    if request.others is None or not settings.current().measure or records().empty:
        return request
    known = [request, *request.others()]
    best = known[
        fastest(_times(op, [[stage.problem for stage in each.stages] for each in known], target, thread_count()))
    ]
    return replace(best, place=request.place, spans=request.spans)


def fastest(seconds: Sequence[float]) -> int:
    """The plan to take by measured times, 0 where nobody measured; the first is the heuristic's."""
    best = min(((time, index) for index, time in enumerate(seconds) if time), default=(0.0, 0))
    return best[1] if seconds[0] and best[0] < (1 - GAIN) * seconds[0] else 0


def _times(op: Op, plans: Sequence[Sequence[Any]], target: str, threads: int) -> list[float]:
    """The measured seconds of each plan, its stages together; 0 where one was not measured."""
    table = records()
    if not settings.current().measure or table.empty:
        return [0.0] * len(plans)
    times = []
    for stages in plans:
        each = [table.lookup(op.name, op.measured_as(stage), target, threads, whole=False) for stage in stages]
        whole = [record.winner.seconds for record in each if record is not None]
        times.append(sum(whole) if len(whole) == len(stages) else 0.0)
    return times
