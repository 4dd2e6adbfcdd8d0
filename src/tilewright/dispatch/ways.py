"""In which stages a problem is solved where several would do (`Op.ways`): the rule's, until others were faster.

The stages of a way are measured apart, as themselves (`tilewright bench OP --ways --save`); its time is their sum.
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

GAIN = 0.02  # part of the rule's time that another way must save


def chosen(op: Op, problem: Any, target: str, threads: int) -> tuple[tuple[Any, ...], str]:
    """The stages to take, and what is to be said of the choice; nothing where there was none."""
    known = op.ways(problem, target)
    names, ways = list(known), [tuple(one) for one in known.values()]
    if len(ways) == 1:
        return ways[0], ""
    times = _times(op, ways, target, threads)
    best = fastest(times)
    told = [f"{name} {seconds * 1e6:.1f} us" for name, seconds in zip(names, times, strict=True) if seconds]
    why = f"measured: {', '.join(told)}" if told else "nobody measured others (`bench --ways --save`)"
    return ways[best], f"{names[best]} by {'measurement' if best else 'heuristic'}; {why}"


def stages_of(op: Op, problem: Any, target: str, threads: int) -> tuple[Any, ...]:
    """The stages to take: without measurements those of the rule, and no other way is worked out."""
    if not settings.current().measure or records().empty:
        return tuple(op.stages(problem, target))
    return chosen(op, problem, target, threads)[0]


def request_of(op: Op, request: Request, target: str) -> Request:
    """The call in the stages to take."""
    if request.others is None or not settings.current().measure or records().empty:
        return request
    known = [request, *request.others()]
    best = known[fastest(_times(op, [[one.problem for one in each.stages] for each in known], target, thread_count()))]
    return replace(best, place=request.place, spans=request.spans)


def fastest(seconds: Sequence[float]) -> int:
    """The way to take by measured times, 0 where nobody measured; the first is the rule's."""
    best = min(((time, index) for index, time in enumerate(seconds) if time), default=(0.0, 0))
    return best[1] if seconds[0] and best[0] < (1 - GAIN) * seconds[0] else 0


def _times(op: Op, ways: Sequence[Sequence[Any]], target: str, threads: int) -> list[float]:
    """The measured seconds of each way, its stages together; 0 where one was not measured."""
    table = records()
    if not settings.current().measure or table.empty:
        return [0.0] * len(ways)
    found = []
    for stages in ways:
        each = [table.lookup(op.name, op.measured_as(one), target, threads, whole=False) for one in stages]
        whole = [one.winner.seconds for one in each if one is not None]
        found.append(sum(whole) if len(whole) == len(stages) else 0.0)
    return found
