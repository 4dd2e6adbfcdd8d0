"""Results as columns: one scope an op, a device and a number of threads, for times of different ones do not compare.

What a problem looks like comes from its op: the fields its tables show, its family, its work.  Problems of an op or a
version that is not here keep their fields, and have no family and no rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilewright import ops
from tilewright.dispatch.results import OK, Choice, KernelRow, Result, canonical
from tilewright.dtypes import DTYPES
from tilewright.errors import TilewrightError
from tilewright.ops.engine import columns_of, engine
from tilewright.report.sources import Source

Array = np.ndarray[Any, Any]
NO_FAMILY = "all"


class Numbered:
    """Things that repeat, numbered in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, value: Any) -> int:
        known = self._numbers.setdefault(key, len(self.values))
        if known == len(self.values):
            self.values.append(value)
        return known

    def find(self, key: Hashable) -> int | None:
        return self._numbers.get(key)


class _Texts:
    """The canonical text of mappings that results share, made once; held here, so that no other takes their place."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], str]] = {}

    def text(self, fields: Mapping[str, Any]) -> str:
        known = self._known.get(id(fields))
        if known is None:
            known = self._known[id(fields)] = (fields, canonical(fields))
        return known[1]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is shown of a problem."""

    problem: Any  # None where its op or version is not here
    columns: Mapping[str, Any]
    family: str = NO_FAMILY
    flops: float = math.nan
    bytes: float = math.nan
    dtype: str = ""  # its element type: that of the first field that names one


@dataclass
class Scope:
    """The results of one op on one device with one number of threads, in columns."""

    op: str
    device: Mapping[str, Any]
    threads: int
    results: list[Result] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    _problems: Numbered = field(default_factory=Numbered)
    _kernels: Numbered = field(default_factory=Numbered)
    _rows: list[tuple[int, int]] = field(default_factory=list)  # numbers of problem and kernel

    def add(self, result: Result, text: str) -> None:
        self.results.append(result)
        at = self._problems.number(text, result), self._kernels.number(result.kernel.digest, result.kernel)
        self._rows.append(at)

    @property
    def kernels(self) -> Sequence[KernelRow]:
        return self._kernels.values

    @cached_property
    def facts(self) -> list[Facts]:
        return [facts_of(value) for value in self._problems.values]

    @cached_property
    def problem_of(self) -> Array:
        """The problem's number of each row."""
        return np.array([problem for problem, _ in self._rows], np.int64)

    @cached_property
    def kernel_of(self) -> Array:
        return np.array([kernel for _, kernel in self._rows], np.int64)

    @cached_property
    def seconds(self) -> Array:
        """Of each row; not a number where it has none."""
        seconds = [result.seconds if result.status == OK and result.seconds and result.seconds > 0 else math.nan
                 for result in self.results]  # fmt: skip
        return np.array(seconds, np.float64)

    @cached_property
    def archs(self) -> list[str]:
        return sorted({kernel.arch for kernel in self.kernels})

    def chosen(self) -> Array:
        """The number of the kernel that was saved as each problem's choice; -1 where none was."""
        chosen = np.full(len(self._problems.values), -1, np.int64)
        for choice in sorted(self.choices, key=lambda each: each.date):
            problem, kernel = self._problems.find(canonical(choice.problem)), self._kernels.find(choice.digest)
            if problem is not None and kernel is not None:
                chosen[problem] = kernel
        return chosen

    def contexts(self) -> list[tuple[int, Mapping[str, Any], Mapping[str, str]]]:
        """How it was measured and with which versions, with the number of rows, the most frequent first."""
        texts = _Texts()
        counts: Counter[tuple[str, str]] = Counter()
        seen: dict[tuple[str, str], Result] = {}
        for result in self.results:
            key = texts.text(result.method), texts.text(result.versions)
            counts[key] += 1
            seen[key] = result
        return [(count, seen[key].method, seen[key].versions) for key, count in counts.most_common()]


def facts_of(result: Result) -> Facts:
    """What its op says of a result's problem."""
    try:
        op = ops.op(result.op)
        problem = op.problem_from_dict(dict(result.problem))
        shown = columns_of(op, problem)
        family = str(engine(op).family(problem))
    except TilewrightError:
        return Facts(None, dict(result.problem))
    dtype = next((value for value in shown.values() if isinstance(value, str) and value in DTYPES), "")
    return Facts(problem, shown, family, float(problem.flops), float(problem.bytes), dtype)


def scopes(source: Source) -> list[Scope]:
    """One an op, device and number of threads, the one with the most rows first."""
    by_key: dict[tuple[str, str, int], Scope] = {}
    texts = _Texts()
    for result in source.results:
        key = (result.op, _fingerprint(result.device), result.threads)
        scope = by_key.get(key)
        if scope is None:
            scope = by_key[key] = Scope(result.op, result.device, result.threads)
        scope.add(result, texts.text(result.problem))
    for choice in source.choices:
        scope = by_key.get((choice.op, _fingerprint(choice.device), choice.threads))
        if scope is not None:
            scope.choices.append(choice)
    return sorted(by_key.values(), key=lambda scope: -len(scope.results))


def _fingerprint(device: Mapping[str, Any]) -> str:
    return str(device.get("fingerprint", ""))


def by_problem(scope: Scope, rows: Iterable[int]) -> dict[int, list[int]]:
    """Rows grouped by the number of their problem."""
    rows_of: dict[int, list[int]] = {}
    numbers = scope.problem_of
    for row in rows:
        rows_of.setdefault(int(numbers[row]), []).append(row)
    return rows_of
