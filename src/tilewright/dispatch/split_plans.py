"""By which split plan a problem is computed (`Op.split_plans`): the heuristic's, until another was measured as faster.

The stages of a plan are measured one by one (`tilewright bench OP --split-plans --save`); its time is their sum.  A
registry with kernels of its own takes the first plan whose stages they serve, where it has kernels for one at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright import settings
from tilewright.dispatch.records import records
from tilewright.ops.base import Op
from tilewright.runtime.host import thread_count
from tilewright.runtime.requests import Request

GAIN = 0.02  # part of the heuristic's time that another plan must save

Serves = Callable[[Any], bool]  # whether a registry's own kernels serve a stage


def chosen(
    op: Op, problem: Any, target: str, threads: int, serves: Serves | None = None
) -> tuple[tuple[Any, ...], str]:
    """The stages to take, and what is to be said of the choice; nothing where there was none."""
    known = op.split_plans(problem, target)
    names, plans = list(known), [tuple(stages) for stages in known.values()]
    if len(plans) == 1:
        return plans[0], ""
    kept = served_plans(plans, serves)
    times = _times(op, [plans[index] for index in kept], target, threads)
    best = kept[fastest(times)]
    shown = [f"{names[at]} {seconds * 1e6:.1f} us" for at, seconds in zip(kept, times, strict=True) if seconds]
    why = f"measured: {', '.join(shown)}" if shown else "no other plan was measured (`bench --split-plans --save`)"
    if best == kept[0]:
        by = "heuristic" if best == 0 else f"heuristic: the registered kernels do not serve {names[0]}"
    else:
        by = "measurement"
    return plans[best], f"{names[best]} by {by}; {why}"


def stages_of(op: Op, problem: Any, target: str, threads: int, serves: Serves | None = None) -> tuple[Any, ...]:
    """The stages to take; no other plan is worked out where nothing was measured and the heuristic's can be had."""
    if not _measured():
        first = tuple(op.stages(problem, target))
        if serves is None or all(map(serves, first)):
            return first
    return chosen(op, problem, target, threads, serves)[0]


def request_of(op: Op, request: Request, target: str, serves: Serves | None = None) -> Request:
    """The call in the stages to take."""
    if request.others is None:
        return request
    if not _measured() and (serves is None or all(serves(stage.problem) for stage in request.stages)):
        return request
    known = [request, *request.others()]
    plans = [[stage.problem for stage in each.stages] for each in known]
    kept = served_plans(plans, serves)
    best = known[kept[fastest(_times(op, [plans[index] for index in kept], target, thread_count()))]]
    return replace(best, place=request.place, spans=request.spans)


def served_plans(plans: Sequence[Sequence[Any]], serves: Serves | None) -> list[int]:
    """Which plans the registered kernels serve; if none whole, the one with the fewest operations left to others."""
    if serves is None:
        return list(range(len(plans)))
    left = [sum(max(1, stage.flops) for stage in stages if not serves(stage)) for stages in plans]
    return [index for index, operations in enumerate(left) if not operations] or [left.index(min(left))]


def _measured() -> bool:
    return settings.current().measure and not records().empty


def fastest(seconds: Sequence[float]) -> int:
    """The plan to take by measured times, 0 where nobody measured; the first is the heuristic's."""
    best = min(((time, index) for index, time in enumerate(seconds) if time), default=(0.0, 0))
    return best[1] if seconds[0] and best[0] < (1 - GAIN) * seconds[0] else 0


def _times(op: Op, plans: Sequence[Sequence[Any]], target: str, threads: int) -> list[float]:
    """The measured seconds of each plan, its stages together; 0 where one was not measured."""
    if not _measured():
        return [0.0] * len(plans)
    times = []
    for stages in plans:
        each = [records().lookup(op.name, op.measured_as(stage), target, threads, whole=False) for stage in stages]
        whole = [record.winner.seconds for record in each if record is not None]
        times.append(sum(whole) if len(whole) == len(stages) else 0.0)
    return times
