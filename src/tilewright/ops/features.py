"""The features of learned selection: one row of numbers a kernel and problem, the same in training and in selection.

    problem       what the op says of the problem                         (`Engine.problem_features`)
    kernel        every flat field of the schedule that is a number, a switch or a word, and what the op works out of
                  a kernel alone                                          (`Engine.kernel_features`, where it has it)
    interaction   what the op works out of both, for all kernels at once   (`Engine.interactions`; what it needs of the
                  kernels alone is worked out once for them:               `Engine.kernel_terms`, where it has it)
    estimate      of a model that wants it: a kernel's analytic estimate over the lowest one
    hardware      units the work is dealt to

The estimate may change after a model was trained: one that sees it remembers what it was (`dispatch.model`, probes).

A feature is known by its name.  A model keeps the names of its own, which alone give the index of a column: a
kernel family that joins an op, or a field that a schedule gains, moves nothing.  A model says nothing of a kernel with
a field that it has no feature for, unless the field has its default: as such kernels were before there was the field.

Words, of kernels and of problems, become numbers by the vocabulary that a model keeps: the order in which an op lists
them does not matter.  A word the vocabulary lacks is -1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.engine import Engine
from tilewright.ops.fields import flat_names as _flat_names
from tilewright.renames import renamed_value, stored_names, stored_values

Array = np.ndarray[Any, Any]
Vocabulary = Mapping[str, Sequence[str]]


_names: dict[Any, dict[str, tuple[str, int | None]]] = {}


def flat_names(kind: type[Any]) -> dict[str, tuple[str, int | None]]:
    """Kept: reading annotations is slow.  A model knows a field and its words as JSON does (`renames.stored_names`)."""
    known = _names.get(kind)
    if known is None:
        stored = stored_names(kind)
        known = _names[kind] = {
            stored.get(name, name) if place is None else name.replace(field, stored.get(field, field), 1): (
                field,
                place,
            )
            for name, (field, place) in _flat_names(kind).items()
        }
    return known


ABSENT = -1.0
MOST_ROWS, MOST_POOLS = 1 << 16, 256  # kept of kernels, and of candidates that are asked about together
ALIKE = 8  # kept of candidates that begin and end with the same kernels
UNITS = "units"
ESTIMATE = "estimate_ratio"
ALIGNED = "aligned_"  # how the names of features begin that say what sizes are multiples of


@lru_cache(maxsize=64)
def kernel_columns(schedules: tuple[type[Any], ...]) -> tuple[str, ...]:
    """The flat names of schedules, whole tuples left out: their elements are there."""
    columns: dict[str, None] = {}
    for kind in schedules:
        names = flat_names(kind)
        whole = {field for field, place in names.values() if place is not None}
        columns |= dict.fromkeys(name for name in names if name not in whole)
    return tuple(columns)


@lru_cache(maxsize=256)
def _defaults(kind: Any) -> dict[str, Any]:
    """What a schedule's flat fields hold where nobody says otherwise; MISSING where somebody must.

    What follows from fields, such as a shape that `axis_names` names, is left out.
    """
    words = stored_values(kind)
    defaults = {field.name: renamed_value(words.get(field.name), field.default) for field in fields(kind)}
    flat = {}
    for name in kernel_columns((kind,)):
        field, place = flat_names(kind)[name]
        if field in defaults:
            whole = defaults[field]
            flat[name] = whole if place is None or whole is MISSING else whole[place] if place < len(whole) else None
    return flat


def problem_words(part: Engine) -> dict[str, tuple[str, ...]]:
    """The features of a problem that are words, each with those an op has today."""
    return {name: tuple(words) for name, words in getattr(part, "problem_words", {}).items()}


def values(spec: KernelSpec, columns: Sequence[str]) -> list[Any]:
    """A kernel's fields, as they are: numbers, switches, words, None where its family has no such field."""
    return _values(spec.schedule, columns)


def _values(schedule: Any, columns: Sequence[str]) -> list[Any]:
    row: list[Any] = []
    kind: Any = type(schedule)
    for field, place, words in _places(kind, tuple(columns)):
        value = getattr(schedule, field) if field else None
        if words is not None:
            value = renamed_value(words, value)
        row.append(value if place is None or value is None else value[place] if place < len(value) else None)
    return row


@lru_cache(maxsize=1024)
def _places(kind: Any, columns: tuple[str, ...]) -> tuple[tuple[str, int | None, Mapping[str, str] | None], ...]:
    """Of each column the field that it is read from, which element of it, and other names of its values."""
    names, words = flat_names(kind), stored_values(kind)
    places = (names.get(name, ("", None)) for name in columns)
    return tuple((field, place, words.get(field)) for field, place in places)


def _number(value: Any, words: Sequence[str]) -> float:
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return float(words.index(value)) if value in words else ABSENT
    return float(value)


def vocabulary(specs: Sequence[KernelSpec], columns: Sequence[str]) -> dict[str, list[str]]:
    """The words of kernels, column by column, in an order that does not depend on theirs."""
    texts: dict[str, set[str]] = {}
    for spec in specs:
        for name, value in zip(columns, values(spec, columns), strict=True):
            if isinstance(value, str):
                texts.setdefault(name, set()).add(value)
    return {name: sorted(words) for name, words in sorted(texts.items())}


@dataclass(frozen=True, slots=True)
class Pool:
    """What a model sees of some kernels alone."""

    specs: Sequence[KernelSpec]
    archs: Sequence[KernelSpec]  # one of each arch
    block: Array  # a row a kernel
    fields: Mapping[str, Any]  # a column a name, and what the op works out of them for its interactions
    new: Mapping[int, Sequence[str]]  # words that the vocabulary lacks, by the kernel's place


class Frame:
    """The columns of a model for one op, filled for any kernels and problem.

    `schedule_fields` are the flat fields of schedules among them, `always` those that every kernel of the training had.
    """

    def __init__(
        self,
        part: Engine,
        schedule_fields: Sequence[str],
        words: Vocabulary,
        *,
        estimated: bool = False,
        always: Collection[str] = (),
    ) -> None:
        self._part, self.words, self.estimated = part, dict(words), estimated
        self._kernel, self._always = tuple(schedule_fields), tuple(sorted(always))
        self._own: tuple[str, ...] = tuple(getattr(part, "kernel_feature_names", ()))
        self._rows: dict[KernelSpec, tuple[list[float], list[str]]] = {}
        self._unseen: dict[Any, dict[str, Any]] = {}  # of a kind of schedule: fields that are no columns, and defaults
        self._pools: dict[tuple[int, ...], tuple[Pool, ...]] = {}
        self.problem_columns, self.interaction_columns = part.problem_feature_names, part.interaction_names
        self._problem_words = [
            (
                self.problem_columns.index(name),
                name,
                {word: float(at) for at, word in enumerate(self.words.get(name, now))},
            )
            for name, now in problem_words(part).items()
        ]
        self.kernel_columns = (*self._kernel, *self._own)
        self.columns: tuple[str, ...] = (
            *part.problem_feature_names, *self.kernel_columns, *part.interaction_names, *[ESTIMATE] * estimated, UNITS,
        )  # fmt: skip

    def signature_words(self, signature: Any) -> tuple[str, ...]:
        """What of a signature a model must have seen: what the op says, else the signature itself."""
        words = getattr(self._part, "signature_words", None)
        return (str(signature.label()),) if words is None else tuple(words(signature))

    def shown_word(self, word: str) -> str:
        """A word of a signature for people: models keep the words they were trained with."""
        shown: Mapping[str, str] = getattr(self._part, "shown_words", {})
        return shown.get(word, word)

    def unknown_words(self, spec: KernelSpec) -> list[str]:
        """Words of a kernel that the vocabulary lacks: nothing learned says anything of it."""
        return self._row(spec)[1]

    def _row(self, spec: KernelSpec) -> tuple[list[float], list[str]]:
        """A kernel's own columns, and its words that the vocabulary lacks; worked out once."""
        known = self._rows.get(spec)  # a digest is a JSON text: ten times as much work as the row
        if known is None:
            pairs = list(zip(self._kernel, values(spec, self._kernel), strict=True))
            row = [_number(value, self.words.get(name, ())) for name, value in pairs]
            if self._own:
                row += [float(value) for value in self._part.kernel_features(spec)]  # type: ignore[attr-defined]
            new = [str(value) for name, value in pairs if value is not None and self._strange(name, value)]
            new += self._beyond(spec.schedule, dict(pairs))
            if len(self._rows) >= MOST_ROWS:
                self._rows.clear()
            known = self._rows[spec] = (row, new)
        return known

    def _strange(self, name: str, value: Any) -> bool:
        """Whether a field holds a word that the vocabulary lacks, or a number where that has words."""
        return value not in self.words.get(name, ()) if isinstance(value, str) else name in self.words

    def _beyond(self, schedule: Any, known: Mapping[str, Any]) -> list[str]:
        """Fields that there is no feature for, and those that every kernel of the training had and this one has not."""
        missing = [f"kernels without {name}" for name in self._always if known.get(name) is None]
        kind: Any = type(schedule)
        defaults = self._unseen.get(kind)
        if defaults is None:
            unseen = {name: value for name, value in _defaults(kind).items() if name not in known}
            defaults = self._unseen[kind] = unseen
        more = zip(defaults.items(), _values(schedule, list(defaults)), strict=True)
        return missing + [f"{name} {value}" for (name, default), value in more if value != default]

    def pool(self, specs: Sequence[KernelSpec], units: int) -> Pool:
        """Kept: the candidates of a signature are asked about again and again, and are the same objects then."""
        specs = specs if isinstance(specs, list) else list(specs)
        key = (units, len(specs), id(specs[0]), id(specs[-1]))
        kept = self._pools.get(key, ())
        for known in kept:  # lists of the same objects compare fast
            if known.specs == specs:
                return known
        if len(self._pools) >= MOST_POOLS:
            self._pools.clear()
        pool = self._pool(list(specs), units)
        self._pools[key] = (pool, *kept)[:ALIKE]
        return pool

    def _pool(self, specs: Sequence[KernelSpec], units: int) -> Pool:
        rows = [self._row(spec) for spec in specs]
        block = np.array([row for row, _ in rows], np.float32).reshape(len(specs), len(self.kernel_columns))
        # Copies, in which neighbours are contiguous.
        fields: dict[str, Any] = dict(zip(self.kernel_columns, block.T.astype(np.float64), strict=True))
        terms = getattr(self._part, "kernel_terms", None)
        if terms is not None:
            fields |= terms(fields, units)
        archs = list({spec.arch: spec for spec in specs}.values())
        return Pool(specs, archs, block, fields, {at: new for at, (_, new) in enumerate(rows) if new})

    def of_problem(self, problem: Any) -> Array:
        values = self._part.problem_features(problem)
        if self._problem_words:
            values = list(values)
            for at, _, numbers in self._problem_words:
                values[at] = numbers.get(values[at], ABSENT)
        return np.array(values, np.float32)

    @property
    def problem_words(self) -> list[tuple[int, str, dict[str, float]]]:
        """The features of a problem that are words: a place, the problem's field, and the numbers of words."""
        return self._problem_words

    def put_words(self, problem: Any, out: Array) -> None:
        """Fill in the words of a problem whose numbers are there; they are fields of the problem by their own names."""
        for at, name, numbers in self._problem_words:
            out[at] = numbers.get(getattr(problem, name), ABSENT)

    def unknown_problem_words(self, problem: Any) -> list[str]:
        """Words of a problem that the vocabulary lacks."""
        values = self._part.problem_features(problem) if self._problem_words else ()
        return [str(values[at]) for at, _, numbers in self._problem_words if values[at] not in numbers]

    @property
    def both_count(self) -> int:
        return len(self._part.interaction_names) + self.estimated

    def of_both(self, pool: Pool, problem: Any, units: int, estimates: Array | None, out: Array) -> None:
        """A row a feature, a column a kernel; the estimates are those of all kernels of the pool."""
        last = len(self._part.interaction_names)
        if last:
            out[:last] = self._part.interactions(problem, pool.fields, units)
        if self.estimated:
            assert estimates is not None, "these features have the estimate among them"
            np.divide(estimates, estimates.min(), out=out[last])

    def rows(self, specs: Sequence[KernelSpec], problem: Any, units: int, estimates: Array | None = None) -> Array:
        """One row a kernel."""
        pool, of_problem = self.pool(specs, units), self.of_problem(problem)
        out = np.empty((len(specs), len(self.columns)), np.float32)
        first = len(of_problem)
        then = first + pool.block.shape[1]
        out[:, :first] = of_problem
        out[:, first:then] = pool.block
        both = np.empty((self.both_count, len(specs)))
        self.of_both(pool, problem, units, estimates, both)
        out[:, then:-1] = both.T
        out[:, -1] = units
        return out
