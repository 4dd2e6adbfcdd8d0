"""The legal kernels nearest to an illegal one: what to change, and how little of it.

Generic over ops.  A neighbour computes the same (signature and arch stay); its schedule differs in as few fields, and
in each as little, as legality allows.  Which values a field may have is asked of the op's pools; numbers may also be
halved and doubled.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import islice, product
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.fields import flat_names
from tilewright.ops.pooling import SMALL, SWEPT

MOST_CHECKS = 2000  # of combinations: some 0.1 s
MOST_VALUES = 160  # of one field
NEAR_NUMBERS = 4  # of one element of a tuple, beside what it is
MUCH_FARTHER = 2.5
OF_POOLS = 6  # kernels of the pools from which what need not differ is put back

A_FIELD = 1.0  # the price of any change; what follows comes on top, a halving or doubling costs 1
A_SWITCH = 0.5
A_WORD = 0.5


@dataclass(frozen=True, slots=True)
class Change:
    """One value of a schedule by its flat name (`tile_k`)."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A legal kernel, what makes it another than the one asked for, and how much that is."""

    spec: KernelSpec
    changes: tuple[Change, ...]
    distance: float

    def __str__(self) -> str:
        return ", ".join(map(str, self.changes))


def neighbours(op: Op, spec: KernelSpec, count: int = 3) -> tuple[Neighbour, ...]:
    """The nearest legal kernels that compute what an illegal spec says, closest first; none where the arch has none.

    One that changes what another does, and more beside, is left out; so is one much farther than the first.
    """
    try:
        if not op.check(spec) or not op.candidates(spec.signature, spec.arch):
            return ()
        proposed = _proposed(op, spec.signature, spec.arch, type(spec.schedule))  # type: ignore[arg-type]
    except TilewrightError:
        return ()
    if not proposed:  # a schedule of another family than the arch has
        return ()
    choices = _choices(spec, proposed)
    nearest = _apart_from_each_other(_walked(op, spec, _mattering(op, spec, choices)), count)
    nearest = nearest or _apart_from_each_other(_walked(op, spec, choices), count)
    return tuple(nearest or _settled(op, spec, islice(_of_pools(op, spec, proposed), OF_POOLS), count))


def _apart_from_each_other(walked: Iterator[Neighbour], count: int) -> list[Neighbour]:
    chosen: list[Neighbour] = []
    for neighbour in walked:
        if not any(set(other.changes) <= set(neighbour.changes) for other in chosen):
            chosen.append(neighbour)
        if len(chosen) == count:
            break
    return chosen


def as_remedy(nearest: Sequence[Neighbour]) -> str:
    """For an error: what to change, closest first."""
    return "; or ".join(map(str, nearest))


@lru_cache(maxsize=32)
def _proposed(op: Op, signature: Any, arch: str, kind: type[Any]) -> tuple[Any, ...]:
    """The schedules of a family that the pools propose for a signature."""
    axes = op.axes_of(signature)
    # Of the pools that turn every axis the first is enough: the next has the same values, and a hundred times more.
    swept = [name for name in op.pool_names if name in SWEPT][:1]
    pools = (*(name for name in op.pool_names if name in SMALL), *swept)
    schedules = (spec.schedule for pool in pools for spec in op.proposals(pool, arch, **axes))
    return tuple(dict.fromkeys(schedule for schedule in schedules if type(schedule) is kind))


# -- how far apart two values are ----------------------------------------------------------------------


def _apart(value: Any, other: Any) -> float:
    """Of two different values; without the price of the field itself."""
    if isinstance(value, tuple) and isinstance(other, tuple) and len(value) == len(other):
        return sum(_apart(a, b) for a, b in zip(value, other, strict=True) if a != b)
    if isinstance(value, bool) and isinstance(other, bool):
        return A_SWITCH
    if isinstance(value, (int, float)) and isinstance(other, (int, float)):
        steps = abs(math.log2(max(value, 0.5) / max(other, 0.5)))
        return math.ceil(steps) + steps / 100  # 192 is as far from 256 as 128 is, and of the two the nearer
    return A_WORD


def price(before: Any, after: Any) -> float:
    """How far apart two values of a field are; nothing where they are the same."""
    return 0.0 if before == after else A_FIELD + _apart(before, after)


# -- the search ----------------------------------------------------------------------------------------

_Choices = Mapping[str, Sequence[tuple[float, Any]]]  # price and value, what was asked for first


def _values(value: Any, pool: set[Any]) -> list[tuple[float, Any]]:
    """What a field may become, cheapest first; what was asked for is the first."""
    known = set(pool)
    if isinstance(value, tuple) and value and all(type(number) in (int, bool) for number in value):
        columns = [
            {known_value[place] for known_value in pool if len(known_value) == len(value)}
            for place in range(len(value))
        ]
        known |= set(product(*(_near(number, column) for number, column in zip(value, columns, strict=True))))
    elif type(value) is int:
        known |= set(_near(value, pool))
    known.discard(value)
    priced = sorted(
        ((price(value, candidate), candidate) for candidate in known), key=lambda pair: (pair[0], str(pair[1]))
    )
    return [(0.0, value), *priced[:MOST_VALUES]]


def _near(value: Any, pool: set[Any]) -> list[Any]:
    """A number, its nearest ones in the pools, its half and its double."""
    known = {candidate for candidate in pool if type(candidate) is type(value) and candidate != value}
    if type(value) is int and value > 0:
        known |= {value // 2, 2 * value} - {0, value}
    return [value, *sorted(known, key=lambda candidate: (_apart(value, candidate), candidate))[:NEAR_NUMBERS]]


def _walked(op: Op, spec: KernelSpec, choices: _Choices) -> Iterator[Neighbour]:
    """Combinations of changed fields in the order of their price, each asked of legality."""
    names = list(choices)
    values = [choices[name] for name in names]
    heap: list[tuple[float, tuple[int, ...], int]] = [(0.0, (0,) * len(names), 0)]
    legal: list[set[tuple[int, int]]] = []
    farthest = math.inf
    for _ in range(MOST_CHECKS):
        if not heap or heap[0][0] > farthest:
            return
        price, places, last = heapq.heappop(heap)
        for index in range(last, len(names)):
            place = places[index] + 1
            if place < len(values[index]):
                more = values[index][place][0] - values[index][place - 1][0]
                heapq.heappush(heap, (price + more, (*places[:index], place, *places[index + 1 :]), index))
        changed = {(index, place) for index, place in enumerate(places) if place}
        if not changed or any(smaller <= changed for smaller in legal):
            continue
        candidate = _with(spec, {names[index]: values[index][place][1] for index, place in changed})
        if not op.check(candidate):
            legal.append(changed)
            farthest = min(farthest, price + MUCH_FARTHER)
            yield Neighbour(candidate, changes(spec, candidate), price)


def _with(spec: KernelSpec, values: Mapping[str, Any]) -> KernelSpec:
    return replace(spec, schedule=replace(spec.schedule, **values))


def _choices(spec: KernelSpec, proposed: Sequence[Any]) -> _Choices:
    """What each field may become."""
    return {
        field.name: _values(getattr(spec.schedule, field.name), {getattr(each, field.name) for each in proposed})
        for field in fields(spec.schedule)
        if field.init
    }


def _mattering(op: Op, spec: KernelSpec, choices: _Choices) -> _Choices:
    """The fields of which some value changes what is said against the spec, be it only a number of it."""
    violations = set(op.check(spec))
    return {
        name: values
        for name, values in choices.items()
        if any(violations - set(op.check(_with(spec, {name: value}))) for _, value in values[1:])
    }


def _of_pools(op: Op, spec: KernelSpec, proposed: Sequence[Any]) -> Iterator[Neighbour]:
    """What the search did not reach: kernels of the pools, nearest first."""
    distances = [0.0] * len(proposed)
    for name in (field.name for field in fields(spec.schedule)):
        wanted, prices = getattr(spec.schedule, name), dict[Any, float]()  # a field has few values
        for place, schedule in enumerate(proposed):
            value = getattr(schedule, name)
            if value not in prices:
                prices[value] = price(wanted, value)
            distances[place] += prices[value]
    for place in sorted(range(len(proposed)), key=distances.__getitem__):
        candidate = replace(spec, schedule=proposed[place])
        if not op.check(candidate):
            yield Neighbour(candidate, changes(spec, candidate), distances[place])


def _settled(op: Op, spec: KernelSpec, walked: Iterator[Neighbour], count: int) -> list[Neighbour]:
    """Kernels of the pools with all that was asked for and is legal put back, nearest first."""
    closer = {neighbour.spec: neighbour for neighbour in (_put_back(op, spec, each.spec) for each in walked)}
    return _apart_from_each_other(iter(sorted(closer.values(), key=lambda neighbour: neighbour.distance)), count)


def _put_back(op: Op, spec: KernelSpec, nearest: KernelSpec) -> Neighbour:
    """A legal kernel with as many values of the one asked for as legality takes, the farthest first."""
    names = [field.name for field in fields(spec.schedule) if field.init]

    def prices(schedule: Any) -> dict[str, float]:
        return {name: price(getattr(spec.schedule, name), getattr(schedule, name)) for name in names}

    again = True
    while again:
        again = False
        for name, cost in sorted(prices(nearest.schedule).items(), key=lambda pair: -pair[1]):
            for value in _between(getattr(spec.schedule, name), getattr(nearest.schedule, name)) if cost else ():
                nearer = _with(nearest, {name: value})
                if not op.check(nearer):
                    nearest, again = nearer, True
                    break
    return Neighbour(nearest, changes(spec, nearest), sum(prices(nearest.schedule).values()))


def _between(wanted: Any, held: Any) -> Iterator[Any]:
    """What was asked for, then the held tuple with one element of it."""
    yield wanted
    if isinstance(wanted, tuple) and isinstance(held, tuple) and len(wanted) == len(held):
        for place, (number, other) in enumerate(zip(wanted, held, strict=True)):
            if number != other:
                yield (*held[:place], number, *held[place + 1 :])


# -- what differs --------------------------------------------------------------------------------------


def changes(before: KernelSpec, after: KernelSpec) -> tuple[Change, ...]:
    """The fields of two schedules that differ, element by element where they have names."""
    mine, theirs = flat(before.schedule), flat(after.schedule)
    names = dict.fromkeys([*mine, *theirs])
    return tuple(Change(name, mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name))


@lru_cache(maxsize=256)
def _names(kind: Any) -> Mapping[str, tuple[str, int | None]]:
    """Kept: reading annotations is slow."""
    return flat_names(kind)


def flat(schedule: Any) -> dict[str, Any]:
    """Every value by its flat name; tuples by element, and only what is a field."""
    held = {field.name for field in fields(schedule)}
    named = _names(type(schedule))  # type: ignore[arg-type]
    by_element = {field for field, place in named.values() if place is not None}
    values: dict[str, Any] = {}
    for name, (field, place) in named.items():
        if field not in held or (place is None and field in by_element):
            continue
        value = getattr(schedule, field)
        values[name] = value if place is None else value[place] if place < len(value) else None
    return values


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
