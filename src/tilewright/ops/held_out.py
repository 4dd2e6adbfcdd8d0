"""Held-out problems, the same way for every op: which problems are near each other, and sets without those near one.

An op says how a problem is spelled: what neighbours have in common, and their sizes.  Where several spellings compute
the same, a problem has all of them, and one in common is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tilewright.ops.engine import Values

if TYPE_CHECKING:
    import random

NEAR = 1.08  # each size of a neighbour is within this factor of the other's

Spelling = tuple[tuple[Any, ...], tuple[int, ...]]
_Problem = TypeVar("_Problem")


def close(sizes: Sequence[int], other: Sequence[int]) -> bool:
    return all(max(a, b) <= NEAR * min(a, b) for a, b in zip(sizes, other, strict=True))


def drawn_in_turn(
    seed: int, count: int, kinds: Sequence[str], draw_one: Callable[[random.Random, str], Values]
) -> Iterator[Values]:
    """Problems drawn by a seed; the kinds alternate."""
    import random  # who only selects does without it

    draw = random.Random(seed)
    for index in range(count):
        yield draw_one(draw, kinds[index % len(kinds)])


_Device = TypeVar("_Device")


def half_each(
    drawn: Callable[[int, int, _Device], Iterable[Values]], seed: int, count: int, devices: tuple[_Device, _Device]
) -> list[Values]:
    """So many problems, half of them drawn for each of two kinds of device."""
    first, second = devices
    return [*drawn(seed, count // 2, first), *drawn(seed + 1, count - count // 2, second)]


class HeldOut(Generic[_Problem]):
    """An op's held-out problems, which are made when somebody asks."""

    def __init__(
        self,
        make: Callable[[], Iterable[Values]],
        problem_of: Callable[[Values], _Problem],
        spellings: Callable[[_Problem], Iterable[Spelling]],
    ) -> None:
        self._make, self._problem_of, self._spellings = make, problem_of, spellings

    def near(self, problem: _Problem, other: _Problem) -> bool:
        return any(
            kind == theirs and close(sizes, others)
            for kind, sizes in self._spellings(problem) for theirs, others in self._spellings(other)
        )  # fmt: skip

    def apart(self, make: Callable[[], Iterable[Values]]) -> Callable[[], list[Values]]:
        """A set without the held-out problems and their neighbours, each problem once."""

        def outside() -> list[Values]:
            kept: dict[_Problem, Values] = {}
            for values in make():
                problem = self._problem_of(values)
                if not self._beside(problem):
                    kept.setdefault(problem, values)
            return list(kept.values())

        return outside

    def _beside(self, problem: _Problem) -> bool:
        held = self._held
        return any(close(sizes, each) for kind, sizes in self._spellings(problem) for each in held.get(kind, ()))

    @cached_property
    def _held(self) -> dict[tuple[Any, ...], list[tuple[int, ...]]]:
        """Sizes by what neighbours have in common."""
        held: dict[tuple[Any, ...], list[tuple[int, ...]]] = {}
        for problem in map(self._problem_of, self._make()):
            for kind, sizes in self._spellings(problem):
                held.setdefault(kind, []).append(sizes)
        return held
