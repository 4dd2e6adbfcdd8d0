"""What an explanation says of each kernel: whether it was chosen, and what keeps it from being."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend
from tilewright.dataclass import NamedTuple
from tilewright.dispatch import built
from tilewright.dispatch.selection import Candidate, Known, Selection, behind
from tilewright.errors import UnknownNameError, counted
from tilewright.ops.base import KernelSpec, Op
from tilewright.runtime.requests import Where


class Comparison(NamedTuple):
    """What kernels are compared by: a problem, its choice, what is known of times, and how equal ones are ordered."""

    op: Op
    problem: Any
    chosen: Selection | None
    known: Known
    order: str
    estimate: Callable[[KernelSpec], float]


def _remarks(spec: KernelSpec) -> list[str]:
    """What the backend has to say of a kernel beside its estimate: a model of its code, for example."""
    owner = backend(arch_by_name(spec.arch).backend)
    try:
        kernels: Any = owner.kernels(spec.op)
    except UnknownNameError:  # a library that a person built: the backend makes none of this op
        return []
    return list(kernels.remarks(spec)) if hasattr(kernels, "remarks") else []


def source(candidates: int, in_registry: int, registered: bool) -> str:
    """Where the candidates of a signature come from."""
    if not registered:
        return f"{counted(candidates, 'default candidate')} of the op, compiled on first use"
    if not in_registry:
        return f"{counted(candidates, 'kernel')} with the signature in bundles in force"
    return f"{candidates} of {in_registry} registered kernels have the signature"


def note(by: Comparison, spec: KernelSpec, where: Where | None) -> Candidate:
    """One kernel beside the choice."""
    refusals = by.op.supports(spec, by.problem)
    reasons = [str(refusal) for refusal in refusals]
    if where is not None and where(spec):
        reasons.append(where(spec))
    seconds = None if reasons else by.estimate(spec)
    measured, predicted = by.known.measured.get(spec.digest), by.known.predicted.get(spec.digest)
    if by.chosen is not None and spec.digest == by.chosen.spec.digest:
        verdict = "chosen"
        reasons += [*by.op.remarks(spec, by.chosen.padded or by.problem), *_remarks(spec)]
    elif seconds is None or by.chosen is None:
        verdict = "refused" if reasons else "slower"
    else:
        winner = by.chosen
        if winner.tier == "heuristic" and by.known.predicted:  # newer than the model: its time was put beside others'
            winner = replace(winner, seconds=by.estimate(winner.spec))
        verdict, why = behind(winner, seconds, by.known, spec.digest, by.order)
        reasons.append(why)
    estimate = None if seconds == math.inf else seconds
    rules = tuple(refusal.rule for refusal in refusals)
    return Candidate(
        spec.name, spec.digest, verdict, tuple(reasons), estimate, measured, built.is_built(spec), predicted, rules
    )
