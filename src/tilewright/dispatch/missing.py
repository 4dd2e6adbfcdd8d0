"""What serves a problem whose kernel is not built, where a call may not wait for a compiler (the setting `missing`).

The best of the kernels that are built takes its place (tier `built`); where none serves the problem as it is, one that
does so in padded copies, then the fallback kernel, these too only if they are built.  Where nothing is built that
serves the problem, the kernel is compiled all the same, with a warning: a result is better than none.  Who wants an
error instead says `frozen`.  A kernel that a lock file pins is never replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright import events, settings
from tilewright.dataclass import dataclass
from tilewright.dispatch import built
from tilewright.dispatch.selection import Selection
from tilewright.errors import NoKernelError
from tilewright.ops.base import KernelSpec

LOSS = 0.03  # more time than that is worth a compile: what `prepare` covers a range within, by default


@dataclass(frozen=True, slots=True)
class Others:
    """What else may serve a problem."""

    times: Callable[[], Sequence[tuple[KernelSpec, float]]]  # all kernels that serve it, by what selection goes by
    lesser: Callable[[Callable[[KernelSpec], bool]], Selection | None]  # in copies, or the fallback, of some kernels


def stamp(now: settings.Settings) -> int | None:
    """What is in the key of a remembered choice."""
    return None if now.missing == "compile" else built.generation()


def served(problem: Any, chosen: Selection, others: Others, who: built.Waiting) -> Selection:
    """The choice itself if it is built, else the best that is."""
    if chosen.tier == "locked" or built.is_built(chosen.spec):
        return chosen
    built.wait_for(chosen.spec, who)
    if built.is_built(chosen.spec):  # built since: there is no notice any more
        return chosen
    times = sorted(others.times(), key=lambda time: time[1])
    fastest = next(((spec, seconds) for spec, seconds in times if built.is_built(spec)), None)
    if fastest is None:
        return _lesser(problem, chosen, others)
    spec, seconds = fastest
    best = next((time for other, time in times if other.digest == chosen.spec.digest), math.nan)
    loss = seconds / best - 1 if best > 0 and math.isfinite(seconds) else None
    more = f" (this one is estimated to take {loss:.1%} longer)" if loss else ""
    building = (loss is None or loss > LOSS) and _building(chosen.spec)
    reason = (
        f"the best kernel that is built{more}: {chosen.name} is not"
        + (" and is built meanwhile" if building else "")
        + f"; it was the choice of the tier {chosen.tier}"
    )
    return _announced(problem, Selection(spec, "built", reason, seconds, wanted=chosen.spec), loss, building)


def _lesser(problem: Any, chosen: Selection, others: Others) -> Selection:
    lesser = others.lesser(built.is_built)
    if lesser is None:
        _nothing_built(problem, chosen)
        return chosen
    building = _building(chosen.spec)
    reason = f"{chosen.name} is not built" + (" yet" if building else "") + f", and of those that are: {lesser.reason}"
    return _announced(problem, replace(lesser, reason=reason, wanted=chosen.spec), None, building)


def _building(spec: KernelSpec) -> bool:
    """Whether a kernel is built meanwhile, as the setting may ask."""
    if settings.current().missing != "background":
        return False
    from tilewright.dispatch import background

    return background.build(spec)


def _announced(problem: Any, chosen: Selection, loss: float | None, building: bool) -> Selection:
    if events.active() and chosen.wanted is not None:
        wanted = chosen.wanted.name
        events.emit(events.Substituted(problem.describe(), chosen.name, wanted, loss, building))
    return chosen


def _nothing_built(problem: Any, chosen: Selection) -> None:
    if settings.current().frozen:
        raise NoKernelError(
            f"no kernel that serves {problem.describe()} is built, and the setting frozen forbids compiling "
            f"{chosen.name}",
            rule="frozen",
            value=chosen.name,
            remedy="build kernels for such problems beforehand: `tw.prepare(...)` or `tilewright prepare`, "
            "without TILEWRIGHT_FROZEN",
        )
    message = (
        f"no kernel that serves {problem.describe()} is built, so its first call compiles {chosen.name}; "
        "`tw.prepare` builds kernels for a range of problems beforehand"
    )
    events.emit(events.Warned("nothing-built", message))
