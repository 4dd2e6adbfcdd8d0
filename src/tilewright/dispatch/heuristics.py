"""A user's own heuristic: a function that names the kernel for a problem, of those that serve it.

    def short_k_last(kernels, problem):
        return min(kernels, key=lambda spec: spec.schedule.tile[2]) if problem.op == OP else None

    tw.Registry(heuristic=short_k_last)   # of one registry
    tw.use_heuristic(short_k_last)        # of all that have none of their own: those behind the public calls

It takes precedence over rules, records, models and estimates, and a lock file over it; where it answers None they
decide.  It is asked once for a problem under given settings: the answer is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from tilewright.dispatch.selection import Selection
from tilewright.errors import RequestError, shown
from tilewright.ops.base import KernelSpec, SelectionRule


class Choosing(Protocol):
    """What keeps choices."""

    def _forget(self) -> None: ...


_of_process: SelectionRule | None = None
_watching: weakref.WeakSet[Any] = weakref.WeakSet()


def checked(heuristic: Any) -> SelectionRule | None:
    """What a caller gives: a function, or None."""
    if heuristic is not None and not callable(heuristic):
        raise RequestError(
            f"heuristic is {shown(heuristic)}",
            rule="heuristic-type",
            value=shown(heuristic),
            remedy="give a function of kernels and a problem that answers one of the kernels, or None",
        )
    function: SelectionRule | None = heuristic
    return function


def watch(registry: Choosing) -> None:
    """Have a registry forget its choices when the heuristic of the process changes."""
    _watching.add(registry)


def current() -> SelectionRule | None:
    return _of_process


def use(heuristic: SelectionRule | None) -> None:
    """For the whole process."""
    global _of_process
    _of_process = checked(heuristic)
    for registry in list(_watching):
        registry._forget()


def name_of(heuristic: SelectionRule) -> str:
    return str(getattr(heuristic, "__name__", None) or type(heuristic).__name__)


def selection(
    heuristic: SelectionRule | None, problem: Any, served: Sequence[tuple[KernelSpec, float]]
) -> Selection | None:
    """What it chooses of the kernels that serve a problem, with their estimates; None where it does not."""
    if heuristic is None or not served:
        return None
    best = heuristic([spec for spec, _ in served], problem)
    if best is None:
        return None
    name = name_of(heuristic)
    seconds = next((time for spec, time in served if spec == best), None)
    if seconds is None:
        raise RequestError(
            f"the heuristic {name} answers {shown(best)} for {problem.describe()}, which is none of the kernels it was "
            "given",
            rule="heuristic-choice",
            value=shown(best),
            remedy="answer one of the kernels, or None",
        )
    reason = f"the heuristic {name} chose it of {len(served)} that serve the problem"
    return Selection(best, "heuristic", reason, seconds, by=name)
