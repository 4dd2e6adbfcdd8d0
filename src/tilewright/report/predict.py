"""What was expected of each measured kernel: the analytic estimate, and what a learned model says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import ops
from tilewright.dispatch import model as models
from tilewright.dispatch.model import Model
from tilewright.errors import TilewrightError
from tilewright.learn.data import estimates_of, units_of
from tilewright.ops.base import KernelSpec, Op
from tilewright.report.scopes import Array, Scope, by_problem

MOST = 250_000  # rows that are predicted: more take minutes, and say nothing new


@dataclass
class Predicted:
    """Seconds of each row, not a number where nothing is said, and why it is not."""

    estimate: Array
    model: Array
    name: str = ""  # of the model
    notes: Counter[str] = field(default_factory=Counter)  # why, and of how many rows


def predict(scope: Scope, models: Sequence[Model]) -> Predicted:
    """Estimates and predictions for the rows that have a time; of very many rows, for problems drawn evenly."""
    count = len(scope.results)
    predicted = Predicted(np.full(count, math.nan), np.full(count, math.nan))
    try:
        op = ops.op(scope.op)
    except TilewrightError:
        predicted.notes[f"the op {scope.op} is not installed here"] += count
        return predicted
    groups = by_problem(scope, np.flatnonzero(~np.isnan(scope.seconds)).tolist())
    specs = _Specs(op)
    done = 0
    for number in _spread(list(groups)):
        rows = groups[number]
        if done > MOST:
            predicted.notes[f"more than {MOST} rows: not predicted"] += len(rows)
            continue
        done += len(rows)
        _group(scope, number, rows, specs, models, predicted)
    return predicted


def _spread(numbers: list[int]) -> list[int]:
    """The same problems in an order in which any beginning is spread over all of them."""
    order = np.random.default_rng(0).permutation(len(numbers))
    return [numbers[at] for at in order]


class _Specs:
    """Kernels as their op reads them, each once; None where it cannot."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._known: dict[str, KernelSpec | None] = {}

    def read(self, digest: str, spec: Any) -> KernelSpec | None:
        if digest not in self._known:
            try:
                self._known[digest] = self._op.spec_from_dict(dict(spec))
            except TilewrightError:
                self._known[digest] = None
        return self._known[digest]


def _group(
    scope: Scope, number: int, rows: list[int], specs: _Specs, known_models: Sequence[Model], predicted: Predicted
) -> None:
    """The rows of one problem: a model is asked for all its kernels at once, as dispatch does."""
    problem = scope.facts[number].problem
    known = [(row, specs.read(kernel.digest, kernel.spec)) for row in rows for kernel in [scope.results[row].kernel]]
    usable = [(row, spec) for row, spec in known if spec is not None]
    if problem is None or not usable:
        predicted.notes["of another version"] += len(rows)
        return
    if len(usable) < len(rows):
        predicted.notes["of another version"] += len(rows) - len(usable)
    at, run_specs = [row for row, _ in usable], [spec for _, spec in usable]
    try:
        estimates = estimates_of(run_specs, problem, scope.threads)
    except Exception as error:  # an op of others fails in ways of its own: the page says so, and has the rest
        predicted.notes[f"the estimate failed: {type(error).__name__}: {error}"] += len(at)
        return
    predicted.estimate[at] = np.where(np.isfinite(estimates) & (estimates > 0), estimates, math.nan)
    if not known_models:
        return
    units = units_of(run_specs[0].arch, scope.threads)
    verdict = models.ask(known_models, run_specs, problem, units, estimates.tolist(), scope.device)
    if verdict.seconds is None:
        predicted.notes[verdict.why_not or "no model is for this op and arch"] += len(at)
        return
    # Kernels the estimate gives no hope are not asked about.
    predicted.model[at] = np.where(np.isfinite(verdict.seconds), verdict.seconds, math.nan)
    predicted.name = verdict.model
