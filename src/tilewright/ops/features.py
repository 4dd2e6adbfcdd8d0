"""What a model sees of a kernel on a problem: one row of numbers a kernel, computed alike in training and in selection.

    problem       what the op says of the problem                         (`Engine.problem_features`)
    kernel        every flat field of the schedule that is a number, a switch or a word, and what the op works out of
                  a kernel alone                                          (`Engine.kernel_features`, where it has it)
    interaction   what the op works out of both, for all kernels at once   (`Engine.interactions`)
    hardware      units the work is dealt to

Nothing of the analytic estimate is among them: it may change without a model knowing.

Words become numbers by a vocabulary that a model keeps; a word it has not seen is -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.ops.base import KernelSpec
from tilewright.ops.engine import Engine
from tilewright.ops.fields import flat_names as _flat_names

Array = np.ndarray[Any, Any]
Vocabulary = Mapping[str, Sequence[str]]


_names: dict[Any, dict[str, tuple[str, int | None]]] = {}


def flat_names(kind: type[Any]) -> dict[str, tuple[str, int | None]]:
    """Kept: reading annotations is slow."""
    known = _names.get(kind)
    if known is None:
        known = _names[kind] = _flat_names(kind)
    return known


ABSENT = -1.0
UNITS = "units"
ALIGNED = "aligned_"  # how the names of features begin that say what sizes are multiples of


@lru_cache(maxsize=16)
def kernel_columns(schedules: tuple[type[Any], ...]) -> tuple[str, ...]:
    """The flat names of an op's schedules, whole tuples left out: their elements are there."""
    found: dict[str, None] = {}
    for kind in schedules:
        names = flat_names(kind)
        whole = {field for field, place in names.values() if place is not None}
        found |= dict.fromkeys(name for name in names if name not in whole)
    return tuple(found)


def values(spec: KernelSpec, columns: Sequence[str]) -> list[Any]:
    """A kernel's fields, as they are: numbers, switches, words, None where its family has no such field."""
    names = flat_names(type(spec.schedule))
    found: list[Any] = []
    for name in columns:
        field, place = names.get(name, ("", None))
        value = getattr(spec.schedule, field) if field else None
        found.append(value if place is None or value is None else value[place] if place < len(value) else None)
    return found


def _number(value: Any, words: Sequence[str]) -> float:
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return float(words.index(value)) if value in words else ABSENT
    return float(value)


def vocabulary(specs: Sequence[KernelSpec], columns: Sequence[str]) -> dict[str, list[str]]:
    """The words of kernels, column by column, in an order that does not depend on theirs."""
    found: dict[str, set[str]] = {}
    for spec in specs:
        for name, value in zip(columns, values(spec, columns), strict=True):
            if isinstance(value, str):
                found.setdefault(name, set()).add(value)
    return {name: sorted(words) for name, words in sorted(found.items())}


class Frame:
    """The columns of a model for one op, filled for any kernels and problem."""

    def __init__(self, part: Engine, schedules: tuple[type[Any], ...], words: Vocabulary) -> None:
        self._part, self.words = part, dict(words)
        self._kernel = kernel_columns(schedules)
        self._own: tuple[str, ...] = tuple(getattr(part, "kernel_feature_names", ()))
        self._known: dict[tuple[str, ...], tuple[Array, dict[str, Array]]] = {}
        self.problem_columns = part.problem_feature_names
        self.columns: tuple[str, ...] = (
            *part.problem_feature_names, *self._kernel, *self._own, *part.interaction_names, UNITS,
        )  # fmt: skip

    def signature_words(self, signature: Any) -> tuple[str, ...]:
        """What of a signature a model must have seen: what the op says, else the signature itself."""
        words = getattr(self._part, "signature_words", None)
        return (str(signature.label()),) if words is None else tuple(words(signature))

    def unknown_words(self, spec: KernelSpec) -> list[str]:
        """Words of a kernel that the vocabulary lacks: nothing learned says anything of it."""
        pairs = zip(self._kernel, values(spec, self._kernel), strict=True)
        return [value for name, value in pairs if isinstance(value, str) and value not in self.words.get(name, ())]

    def _kernels(self, specs: Sequence[KernelSpec]) -> tuple[Array, dict[str, Array]]:
        """The kernels' own columns, kept: the candidates of a signature are asked for again and again."""
        key = tuple(one.digest for one in specs)
        known = self._known.get(key)
        if known is None:
            names = (*self._kernel, *self._own)
            rows = [self._kernel_row(spec) for spec in specs]
            block = np.array(rows, np.float32).reshape(len(rows), len(names))
            # Copies, in which neighbours lie side by side.
            known = (block, {name: block[:, index].astype(np.float64) for index, name in enumerate(names)})
            if len(self._known) > 256:
                self._known.clear()
            self._known[key] = known
        return known

    def _kernel_row(self, spec: KernelSpec) -> list[float]:
        pairs = zip(self._kernel, values(spec, self._kernel), strict=True)
        found = [_number(value, self.words.get(name, ())) for name, value in pairs]
        return [*found, *(float(one) for one in self._part.kernel_features(spec))] if self._own else found  # type: ignore[attr-defined]

    def rows(self, specs: Sequence[KernelSpec], problem: Any, units: int) -> Array:
        """One row a kernel."""
        block, columns = self._kernels(specs)
        of_problem = np.asarray(self._part.problem_features(problem), np.float32)
        both = self._part.interactions(problem, columns, units)
        out = np.empty((len(specs), len(self.columns)), np.float32)
        first = len(of_problem)
        out[:, :first] = of_problem
        out[:, first : first + block.shape[1]] = block
        at = first + block.shape[1]
        for one in both:
            out[:, at] = one
            at += 1
        out[:, at] = units
        return out
