"""Search: which kernels to measure next, where a pool is too large to measure whole.

A strategy proposes trials and receives their times; it never measures anything itself, and is the same for the same
seed and the same answers.  What it knows of kernels is what their schedules are made of (`Space`), for any op.

    random   every kernel of the pool, in an order by seed
    evolve   neighbours and crossings of the fastest so far
    model    what a model of the times so far expects most of; it begins with what dispatch predicts
    halving  many kernels with few rounds each; those within the noise of the fastest get twice as many

Each begins with the kernel that dispatch takes now, so that none ends with a slower one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilewright.dataclass import NamedTuple
from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.base import KernelSpec
from tilewright.ops.neighbours import flat, price

BATCH = 8  # trials that are asked for together: they are built at once, and measured in turns
Array = Any  # np.ndarray[Any, Any]: shapes and types are said where they are made


class Trial(NamedTuple):
    """A kernel by its place in the space, and how many rounds it is timed."""

    place: int
    rounds: int


class Seen(NamedTuple):
    """What a trial took; no seconds where the kernel has no time on the problem."""

    seconds: float | None
    spread: float  # interquartile range over the median
    rounds: int


@dataclass(frozen=True)
class Space:
    """The kernels to choose from, and where to begin: `start` are places, `expected` predicts seconds of places."""

    specs: Sequence[KernelSpec]
    start: Sequence[int] = ()
    expected: Callable[[Sequence[int]], Sequence[float]] = lambda places: [math.inf] * len(places)

    def __len__(self) -> int:
        return len(self.specs)


class Shape:
    """What the kernels of a space are made of: every value by its flat name, as numbers to compute with."""

    def __init__(self, specs: Sequence[KernelSpec]) -> None:
        rows = [flat(spec.schedule) for spec in specs]
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns: list[list[Any]] = [[row.get(name) for row in rows] for name in names]
        self._values = [list(dict.fromkeys(column)) for column in columns]
        kept = [index for index, values in enumerate(self._values) if len(values) > 1]  # the others say nothing
        self._values = [self._values[index] for index in kept]
        self.codes: Array = np.zeros((len(rows), len(kept)), np.int32)  # which of its values a kernel has, a name
        for into, index in enumerate(kept):
            place = {value: code for code, value in enumerate(self._values[into])}
            self.codes[:, into] = [place[value] for value in columns[index]]
        self._prices = [np.array([[price(a, b) for b in values] for a in values]) for values in self._values]

    def far(self, codes: Array) -> Array:
        """How far every kernel is from one that would be made of these values."""
        total = np.zeros(len(self.codes))
        for index, prices in enumerate(self._prices):
            total += prices[codes[index]][self.codes[:, index]]
        return total

    def features(self) -> Array:
        """A row of numbers a kernel: logarithms of numbers, a column for each word; each column of unit spread."""
        columns: list[Array] = []
        for index, values in enumerate(self._values):
            code = self.codes[:, index]
            if all(type(value) is int and value >= 0 for value in values):
                columns.append(np.log2(np.array([value + 1.0 for value in values]))[code])
            else:
                columns += [(code == which).astype(float) for which in range(len(values))]
        table = np.stack(columns, axis=1) if columns else np.zeros((len(self.codes), 1))
        spread = table.std(axis=0)
        return (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


class Strategy(Protocol):
    """`ask` and `tell` alternate; `ask` gives nothing where there is nothing left to try."""

    def ask(self) -> Sequence[Trial]: ...

    def tell(self, trial: Trial, seen: Seen) -> None: ...


class _Known:
    """What `tell` was given: seconds by index, infinite where a kernel has none."""

    def __init__(self, space: Space, seed: int, rounds: int) -> None:
        self.space, self.rounds = space, rounds
        self.draw = np.random.default_rng(seed)
        self.order = [int(place) for place in self.draw.permutation(len(space))]
        self.seconds: dict[int, float] = {}
        self.spreads: dict[int, float] = {}

    def tell(self, trial: Trial, seen: Seen) -> None:
        self.seconds[trial.place] = math.inf if seen.seconds is None else seen.seconds
        self.spreads[trial.place] = seen.spread

    def fastest(self, count: int) -> list[int]:
        finite = [place for place, seconds in self.seconds.items() if math.isfinite(seconds)]
        return sorted(finite, key=lambda place: (self.seconds[place], place))[:count]

    def fresh(self, places: Iterable[int], count: int) -> list[int]:
        """The first of them that are not known, each once."""
        fresh = dict.fromkeys(place for place in places if place not in self.seconds)
        return list(fresh)[:count]

    def trials(self, places: Iterable[int]) -> list[Trial]:
        return [Trial(place, self.rounds) for place in places]


class Random(_Known):
    """By seed, each once."""

    def ask(self) -> Sequence[Trial]:
        return self.trials(self.fresh((*self.space.start, *self.order), BATCH))


ELITE = 8  # kernels that have children
NEAREST = 12  # of which a neighbour is drawn
CROSSED, STRANGE = 0.3, 0.15  # shares of children of two parents, and of none


class Evolve(_Known):
    """Children of the fastest: a neighbour of one, or the kernel nearest to a mixture of two; some by chance."""

    def __init__(self, space: Space, seed: int, rounds: int) -> None:
        super().__init__(space, seed, rounds)
        self._shape: Shape | None = None

    def ask(self) -> Sequence[Trial]:
        if len(self.seconds) < BATCH or not self.fastest(1):
            return self.trials(self.fresh((*self.space.start, *self.order), BATCH))
        self._shape = self._shape or Shape(self.space.specs)
        elite, chosen = self.fastest(ELITE), dict[int, None]()
        left = len(self.space) - len(self.seconds)
        while len(chosen) < min(BATCH, left):
            chosen[self._child(self._shape, elite, chosen)] = None
        return self.trials(chosen)

    def _child(self, shape: Shape, elite: Sequence[int], taken: Mapping[int, None]) -> int:
        kind = self.draw.random()
        if kind < STRANGE:
            return next(place for place in self.order if place not in self.seconds and place not in taken)
        codes = shape.codes[self._parent(elite)]
        if kind < STRANGE + CROSSED:
            other = shape.codes[self._parent(elite)]
            codes = np.where(self.draw.random(len(codes)) < 0.5, codes, other)
        far = shape.far(codes)
        far[[*self.seconds, *taken]] = np.inf
        count = min(NEAREST, int(np.isfinite(far).sum()))
        near = np.argpartition(far, count - 1)[:count]
        near = near[np.lexsort((near, far[near]))]
        weights = 0.5 ** (far[near] - far[near[0]])  # a step more is half as likely
        return int(self.draw.choice(near, p=weights / weights.sum()))

    def _parent(self, elite: Sequence[int]) -> int:
        weights = 1.0 / np.arange(1, len(elite) + 1)
        return int(self.draw.choice(np.array(elite), p=weights / weights.sum()))


MOST_MODELLED = 400  # trials the model is made of, the fastest and the latest; more would take longer than a trial
MOST_SCORED = 4096  # kernels it is asked of
FLOOR_NOISE = 0.01
SLOWER = 2.0  # what a kernel without a time counts as, times the slowest


class Model(_Known):
    """A Gaussian process over what schedules are made of, on the logarithm of time over the time expected."""

    def __init__(self, space: Space, seed: int, rounds: int) -> None:
        super().__init__(space, seed, rounds)
        self._shape: Shape | None = None
        self._features: Array = None
        self._expected: Array = None

    def ask(self) -> Sequence[Trial]:
        if self._shape is None:
            self._prepare()
        assert self._shape is not None
        promising = sorted(range(len(self.space)), key=lambda place: (self._expected[place], place))
        if len(self.seconds) < BATCH or not self.fastest(1):
            half = self.fresh((*self.space.start, *promising), BATCH // 2)
            return self.trials(self.fresh((*half, *self.order), BATCH))
        return self.trials(self._best_of(self._to_score(self._shape)))

    def _prepare(self) -> None:
        self._shape = Shape(self.space.specs)
        self._features = self._shape.features()
        expected = np.array(self.space.expected(range(len(self.space))), float)
        known = expected[np.isfinite(expected) & (expected > 0)]
        usual = float(np.median(known)) if len(known) else 1.0
        self._expected = np.where(np.isfinite(expected) & (expected > 0), expected, usual)

    def _to_score(self, shape: Shape) -> Array:
        """The kernels to score: all that are not known, or neighbours of the fastest and some by chance."""
        fresh = self.fresh(self.order, len(self.space))
        if len(fresh) <= MOST_SCORED:
            return np.array(fresh, int)
        far = np.minimum.reduce([shape.far(shape.codes[place]) for place in self.fastest(ELITE)])
        far[list(self.seconds)] = np.inf
        near = np.argsort(far, kind="stable")[: MOST_SCORED // 2]
        return np.array(self.fresh((*map(int, near), *self.order), MOST_SCORED), int)

    def _data(self) -> tuple[Array, Array, Array]:
        """Places, logarithms of time over expected, and variances."""
        latest = list(self.seconds)[-MOST_MODELLED // 2 :]
        places = np.array(list(dict.fromkeys([*self.fastest(MOST_MODELLED // 2), *latest])), int)
        seconds = np.array([self.seconds[place] for place in places])
        finite = seconds[np.isfinite(seconds)]
        seconds = np.where(np.isfinite(seconds), seconds, SLOWER * finite.max())
        noise = np.array([self.spreads[place] for place in places]) / 1.35
        return places, np.log(seconds / self._expected[places]), np.maximum(noise, FLOOR_NOISE) ** 2

    def _best_of(self, candidates: Array) -> list[int]:
        """The most improvement expected, one after the other: each is taken for measured at its mean."""
        places, values, noise = self._data()
        process = Process(self._features[places], values, noise)
        best = math.log(min(self.seconds.values()))
        offset = np.log(self._expected[candidates])
        features, chosen = self._features[candidates], list[int]()
        for _ in range(min(BATCH, len(candidates))):
            mean, deviation = process.predict(features)
            gain = _improvement(best - (mean + offset), deviation)
            gain[chosen] = -1.0
            pick = int(np.lexsort((candidates, -gain))[0])
            chosen.append(pick)
            process.add(features[pick], float(mean[pick]))
        return [int(candidates[index]) for index in chosen]


def _improvement(ahead: Array, deviation: Array) -> Array:
    """What is won on average where the outcome is normal, `ahead` better in the mean."""
    z = np.clip(ahead / deviation, -30.0, 30.0)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return ahead * _normal_below(z) + deviation * density


def _normal_below(z: Array) -> Array:
    """The share of a normal distribution below z, to seven digits (Abramowitz and Stegun 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * series
    return np.where(z < 0, above, 1 - above)


class Process:
    """A Gaussian process (Matern 3/2); of a few lengths the most likely is taken."""

    _LENGTHS = (0.5, 1.0, 2.0, 4.0)

    def __init__(self, points: Array, values: Array, noise: Array) -> None:
        self._points, self._noise = points, noise
        self._middle = float(values.mean())
        self._scale = float(values.std()) or 1.0
        self._values = (values - self._middle) / self._scale
        lengths = [length * math.sqrt(points.shape[1]) for length in self._LENGTHS]
        fits = [self._fitted(length) for length in lengths]
        self._length, (self._root, self._weights, _) = max(
            zip(lengths, fits, strict=True), key=lambda fit: (fit[1][2], -fit[0])
        )

    def _fitted(self, length: float) -> tuple[Array, Array, float]:
        """Root of the covariance, weights of the values, and how likely they are."""
        covariance = self._kernel(self._points, self._points, length)
        covariance[np.diag_indices_from(covariance)] += self._noise / self._scale**2 + 1e-6
        root = np.linalg.cholesky(covariance)
        weights = np.linalg.solve(root.T, np.linalg.solve(root, self._values))
        return root, weights, float(-0.5 * self._values @ weights - np.log(np.diag(root)).sum())

    @staticmethod
    def _kernel(points: Array, other: Array, length: float) -> Array:
        squares = (points**2).sum(1)[:, None] + (other**2).sum(1)[None, :] - 2 * points @ other.T
        far = np.sqrt(np.maximum(squares, 0.0)) * (math.sqrt(3) / length)
        return (1 + far) * np.exp(-far)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations."""
        across = self._kernel(points, self._points, self._length)
        mean = across @ self._weights * self._scale + self._middle
        solved = np.linalg.solve(self._root, across.T)
        variance = np.maximum(1.0 - (solved**2).sum(0), 1e-9)
        return mean, np.sqrt(variance) * self._scale

    def add(self, point: Array, value: float) -> None:
        """One more, at the length there is."""
        self._points = np.vstack([self._points, point])
        self._values = np.append(self._values, (value - self._middle) / self._scale)
        self._noise = np.append(self._noise, FLOOR_NOISE**2)
        self._root, self._weights, _ = self._fitted(self._length)


FIRST_ROUNDS = 4  # fewer have no spread, and without that nobody knows the noise
CERTAIN = 2.0  # standard errors that keep two kernels apart
UNKNOWN_NOISE = 0.1  # of one round, where there are not enough rounds to know
UNKNOWN_SPREAD = 1.35 * UNKNOWN_NOISE  # between the quartiles of that


@dataclass
class _Bracket:
    """Kernels that are left of those that began together, and the rounds that they are timed next."""

    places: list[int]
    rounds: int
    seen: dict[int, Seen] = field(default_factory=dict)


class Halving(_Known):
    """Brackets of kernels by chance: all with few rounds; the half that may be the fastest goes on with twice as many.

    A kernel that the noise of its rounds keeps apart from the fastest gets no more of them; one bracket's winner is
    in the next.
    """

    SIZE = 4 * BATCH

    def __init__(self, space: Space, seed: int, rounds: int) -> None:
        super().__init__(space, seed, rounds)
        self._bracket: _Bracket | None = None
        self._tried: set[int] = set()  # in any bracket
        self._noises: list[float] = []
        self._whole: dict[int, Seen] = {}  # measured with all the rounds there are

    def tell(self, trial: Trial, seen: Seen) -> None:
        if seen.seconds is not None and seen.rounds >= FIRST_ROUNDS:
            self._noises.append(seen.spread / 1.35)
        if seen.rounds >= self.rounds or seen.seconds is None:
            super().tell(trial, seen)
            self._whole[trial.place] = seen
        if self._bracket is not None:
            self._bracket.seen[trial.place] = seen

    @property
    def _noise(self) -> float:
        """Of one round, as a share of the time."""
        return max(FLOOR_NOISE / 2, float(np.median(self._noises))) if self._noises else UNKNOWN_NOISE

    def ask(self) -> Sequence[Trial]:
        first = [place for place in self.space.start if place not in self._whole]
        if first:  # whatever the time, there is a whole measurement to compare with
            return self.trials(first)
        while True:
            bracket = self._bracket or self._begun()
            if bracket is None:
                return []
            self._bracket = bracket
            for place in bracket.places:  # what has all its rounds needs no more
                if place in self._whole:
                    bracket.seen.setdefault(place, self._whole[place])
            missing = [place for place in bracket.places if place not in bracket.seen]
            if missing:
                return [Trial(place, bracket.rounds) for place in missing]
            self._bracket = self._next(bracket)

    def _begun(self) -> _Bracket | None:
        fresh = [fromkey for fromkey in dict.fromkeys((*self.space.start, *self.order)) if fromkey not in self._tried]
        fresh = [place for place in fresh if place not in self._whole][: self.SIZE]
        if not fresh:
            return None
        self._tried.update(fresh)
        return _Bracket([*fresh, *(place for place in self.fastest(1) if place not in fresh)], self.rungs()[0])

    def rungs(self) -> list[int]:
        """Rounds of each step: doubled each time, the last are all."""
        rungs = [self.rounds]
        while rungs[0] // 2 >= FIRST_ROUNDS:
            rungs.insert(0, rungs[0] // 2)
        return rungs

    def _next(self, bracket: _Bracket) -> _Bracket | None:
        """What is left of a bracket after a round; nothing where it is decided."""
        timed = {place: seen for place, seen in bracket.seen.items() if seen.seconds is not None}
        if not timed or bracket.rounds >= self.rounds:
            return None
        left = self._hopeful(timed)
        half = sorted(left, key=lambda place: (timed[place].seconds, place))[: max(1, len(bracket.places) // 2)]
        rounds = next(rung for rung in self.rungs() if rung > bracket.rounds)
        if len(half) == 1:
            rounds = self.rounds  # the winner has a time like any other
        return _Bracket(half, rounds)

    def _hopeful(self, timed: Mapping[int, Seen]) -> list[int]:
        """Those whose rounds do not rule out that they are the fastest."""

        def error(seen: Seen) -> float:
            return CERTAIN * self._noise / math.sqrt(max(1, seen.rounds))

        least = min((seen.seconds or 0.0) * (1 + error(seen)) for seen in timed.values())
        return [place for place, seen in timed.items() if (seen.seconds or 0.0) * (1 - error(seen)) <= least]


STRATEGIES: Mapping[str, Callable[[Space, int, int], Strategy]] = {
    "random": Random, "evolve": Evolve, "model": Model, "halving": Halving,
}  # fmt: skip


def demand_known(name: str) -> None:
    if name not in STRATEGIES:
        raise UnknownNameError(
            f"{name!r} is not a search strategy", rule="search-name", value=name, remedy=nearest(name, list(STRATEGIES))
        )


def strategy(name: str, space: Space, seed: int, rounds: int) -> Strategy:
    """One by its name; `rounds` are those of a whole measurement."""
    demand_known(name)
    return STRATEGIES[name](space, seed, rounds)
