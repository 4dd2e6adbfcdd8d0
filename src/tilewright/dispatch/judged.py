"""The kernels that serve a problem, with their estimates: by the selection library, or kernel by kernel in Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewright.arch import Arch
from tilewright.backends.base import Backend
from tilewright.dataclass import NamedTuple
from tilewright.dispatch import learned
from tilewright.dispatch.selection import Selection
from tilewright.dispatch.states import State
from tilewright.native import library
from tilewright.native.judge import Answer, Judge, judge
from tilewright.ops.base import KernelSpec, Op
from tilewright.runtime.requests import Where

if TYPE_CHECKING:
    from tilewright.dispatch.chooser import Chooser
    from tilewright.dispatch.model import Verdict

Served = list[tuple[KernelSpec, float]]

MOST_JUDGES = 1024  # kept; one a signature


def by_estimate(spec: KernelSpec, seconds: float, count: int) -> Selection:
    """The choice by the estimate, of so many kernels that serve a problem."""
    if math.isinf(seconds):
        why = library.why_missing() or "see TILEWRIGHT_EVENTS"
        reason = f"first of its pool: no estimate, because the selection library was not built ({why})"
        return Selection(spec, "heuristic", reason, seconds)
    return Selection(spec, "heuristic", _lowest_of(count), seconds)


@lru_cache(maxsize=4096)
def _lowest_of(count: int) -> str:
    return f"lowest estimate of {count} kernels that serve the problem" if count > 1 else "the only kernel"


class Asking(NamedTuple):
    """The models that have something to say of a judge's kernels, and what asks the first of them in C."""

    judge: Judge
    voices: Any
    chooser: Chooser | None  # None where C cannot


class Kind(NamedTuple):
    """Problems of one signature in one state of settings, where a model or the estimate decides and nothing else."""

    asking: Asking
    alone: bool  # their op has one kernel for them


class Kinds:
    """Those of one registry, by state and signature."""

    __slots__ = ("_equal", "by_id")

    def __init__(self) -> None:
        # A signature is long to hash, and problems of new sizes share one object: the same by the identity of both,
        # which the entries keep.
        self.by_id: dict[tuple[int, int], tuple[State, Any, Kind]] = {}
        self._equal: dict[tuple[State, Any], Kind] = {}

    def equal(self, state: State, signature: Any) -> Kind | None:
        known = self._equal.get((state, signature))
        return None if known is None else self.keep(state, signature, known)

    def keep(self, state: State, signature: Any, kind: Kind) -> Kind:
        if len(self.by_id) >= MOST_JUDGES:
            self.by_id.clear()
            self._equal.clear()
        self._equal[state, signature] = kind
        self.by_id[id(state), id(signature)] = state, signature, kind
        return kind


class Judges:
    """What asks about the kernels of a registry."""

    def __init__(self, owner: Backend) -> None:
        self._backend = owner
        # With the number of selection libraries that had come late: one that was missed may be there since.
        self._known: dict[Any, tuple[Sequence[KernelSpec], Judge | None, int]] = {}

    def judge_for(self, op: Op, signature: Any, candidates: Sequence[KernelSpec], registered: bool) -> Judge | None:
        """None where the library does not know these kernels: Python is asked then."""
        key = (op.name, signature)
        known = self._known.get(key)
        if known is not None and known[0] is candidates and (known[1] is not None or known[2] == library.recovered):
            return known[1]
        # Of equal estimates the op's order decides; kernels that were registered have none that is theirs everywhere.
        order = list(range(len(candidates)))
        if registered:
            ranks = {spec.digest: rank for rank, spec in enumerate(sorted(candidates, key=lambda spec: spec.digest))}
            order = [ranks[spec.digest] for spec in candidates]
        if len(self._known) >= MOST_JUDGES:
            self._known.clear()
        known_judge = judge(candidates, order)
        self._known[key] = candidates, known_judge, library.recovered
        return known_judge

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        """What the backend predicts; NaN would win or lose by its place in the list, so it counts as infinite."""
        seconds = self._backend.estimate(spec, problem, threads)
        return math.inf if math.isnan(seconds) else seconds

    def served(
        self,
        op: Op,
        problem: Any,
        threads: int,
        candidates: Sequence[KernelSpec],
        mine: Judge | None,
        where: Where | None = None,
    ) -> Served:
        """The kernels that serve a problem as it is, with their estimates; `mine` is the judge of all candidates."""
        if mine is None:
            serving = [spec for spec in candidates if not op.supports(spec, problem)]
            pairs = [(spec, self.estimate(spec, problem, threads)) for spec in serving]
        else:
            answer = mine.ask(problem, threads)
            seconds = answer.seconds.tolist()
            pairs = [(candidates[at], seconds[at]) for at in (answer.rules == 0).nonzero()[0].tolist()]
        return pairs if where is None else [pair for pair in pairs if not where(pair[0])]

    def asking(self, mine: Judge, arch: Arch, state: State) -> Asking:
        """What is asked of a judge's kernels in a state of settings and files."""
        known: Asking | None = state.asking.get(id(mine))
        if known is None or known.judge is not mine:
            known = state.asking[id(mine)] = self._asking(mine, arch, state.threads)
        return known

    def chosen(self, asking: Asking, op: Op, problem: Any, arch: Arch, threads: int) -> Selection | None:
        """The kernel a model or the estimate chooses, by the library; None where none serves the problem."""
        mine, voices, quick = asking
        # Models learned from problems as they are measured, and are asked of such.
        if quick is not None and op.measured_as(problem) is problem:
            choice = quick.choose(problem)
            if choice is not None:
                if choice.predicted:
                    return quick.selection(choice)
                return by_estimate(mine.specs[choice.best], choice.seconds, choice.served) if choice.served else None
        answer = mine.ask(problem, threads)
        count, best = answer.served, answer.best
        if not count:
            return None
        seconds = float(answer.seconds[best])
        if count > 1 and voices:
            verdict = self._verdict(mine, op, problem, threads, arch, answer, voices)
            by_model = learned.selection(mine.specs, count, verdict)
            if by_model is not None:
                return by_model
        return by_estimate(mine.specs[best], seconds, count)

    def _asking(self, mine: Judge, arch: Arch, threads: int) -> Asking:
        # Of one kernel, which bundles often have, no model is read: that takes a sixth of a first call.
        voices = self._voices(mine, arch, threads) if len(mine.specs) > 1 else ()
        if not voices:
            return Asking(mine, (), None)
        from tilewright.dispatch.chooser import chooser  # without a model there is nothing to import

        return Asking(mine, voices, chooser(mine, voices, threads, learned.units_of(arch, threads)))

    @staticmethod
    def _voices(mine: Judge, arch: Arch, threads: int) -> Any:
        return learned.voices(arch, threads, mine.specs) if learned.asked() else ()

    def _verdict(
        self, mine: Judge, op: Op, problem: Any, threads: int, arch: Arch, answer: Answer, voices: Any
    ) -> Verdict | None:
        """What a model says of all candidates; None where none says anything.  It may write over the answer's times."""
        served, estimates = answer.rules == 0, answer.seconds
        # Models learned from problems as they are measured, and are asked of such.
        measured = op.measured_as(problem)
        if measured is not problem and measured != problem:
            estimates = mine.estimates(measured, threads, served)
        return learned.judged(arch, measured, threads, voices, estimates, served)

    def times(
        self, mine: Judge | None, op: Op, problem: Any, threads: int, candidates: Sequence[KernelSpec], arch: Arch
    ) -> Served:
        """All kernels that serve a problem with the times that selection compares: predicted, or else estimated.

        A model predicts only those whose estimates give them a hope; the others stay in the ratio of their estimates.
        """
        if mine is None:
            served = self.served(op, problem, threads, candidates, None)
            verdict = self.verdict(op, problem, threads, served, arch)
            predicted = None if verdict is None or verdict.seconds is None else verdict.seconds.tolist()
        else:
            answer = mine.ask(problem, threads)
            places, estimates = (answer.rules == 0).nonzero()[0].tolist(), answer.seconds.tolist()
            served = [(mine.specs[at], estimates[at]) for at in places]
            voices = self._voices(mine, arch, threads) if len(served) > 1 else ()
            verdict = self._verdict(mine, op, problem, threads, arch, answer, voices) if voices else None
            predicted = None if verdict is None or verdict.seconds is None else verdict.seconds[places].tolist()
        if not predicted:
            return served
        ratio = min(predicted) / min(seconds for _, seconds in served)
        return [
            (spec, time if math.isfinite(time) else seconds * ratio)
            for (spec, seconds), time in zip(served, predicted, strict=True)
        ]

    def in_python(
        self, op: Op, problem: Any, threads: int, candidates: Sequence[KernelSpec], registered: bool, arch: Arch
    ) -> Selection | None:
        """The same of kernels that the selection library does not know."""
        served = self.served(op, problem, threads, candidates, None)
        if not served:
            return None
        verdict = self.verdict(op, problem, threads, served, arch)
        by_model = learned.selection([spec for spec, _ in served], len(served), verdict)
        if by_model is not None:
            return by_model
        # Of equal estimates the op's order decides; kernels that were registered have none that is theirs everywhere.
        best, seconds = min(served, key=lambda pair: (pair[1], pair[0].digest if registered else ""))
        return by_estimate(best, seconds, len(served))

    def verdict(self, op: Op, problem: Any, threads: int, served: Served, arch: Arch) -> Any:
        """What a model says; it learned from problems as they are measured, and is asked of such."""
        if not learned.asked():
            return None
        measured = op.measured_as(problem)
        if measured != problem:
            served = [(spec, self.estimate(spec, measured, threads)) for spec, _ in served]
        return learned.verdict(arch, measured, threads, served)
