"""Searching under a budget of time: trials through a sweep, and how far what was found may be from the best.

Every trial is a row of the store, checked before it was timed, like any other: the same command goes on from what is
there, other sweeps need not measure it again, and models learn from it.  The budget is for all problems together; each
gets an equal part of what is left.  A batch that is begun is finished, and none is begun that is not expected to end
in time: the first by what such kernels are said to take (`price`), the others by what those before took.  One kernel is
tried in any case where nothing is known: a search that finds nothing is of no use.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.base import backend
from tilewright.dataclass import NamedTuple
from tilewright.dispatch import learned
from tilewright.dispatch.results import OK
from tilewright.errors import RequestError
from tilewright.ops.base import plain
from tilewright.tune import quiet
from tilewright.tune.price import Prices
from tilewright.tune.search import UNKNOWN_SPREAD, Halving, Random, Seen, Space, Strategy, Trial, strategy
from tilewright.tune.sweep import Item, Sweep, Work

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.dispatch.results import Result

ROUNDS = {"halving": 16}  # of a whole measurement, where nobody says: enough that it can be halved
RESAMPLED = 1000

Evaluate = Callable[[Sequence[Trial]], Sequence[Seen]]
# Seconds that the first trial is expected to take, the first two together, and so on.
Price = Callable[[Sequence[Trial]], Sequence[float]]
Clock = Callable[[], float]

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """A length of time as people write it: 90, 120s, 2m, 1.5h."""
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*", text.lower(), re.ASCII)
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise RequestError(
            f"{text!r:.60} is no length of time", rule="search-budget", value=text, remedy="give 120s, 2m or 1.5h"
        )
    return float(match[1]) * _UNITS[match[2]]


class Step(NamedTuple):
    """One trial that was made, and when it was known."""

    trial: Trial
    seen: Seen
    at: float  # seconds after the search began


@dataclass(slots=True)
class Trace:
    """What a search did on one problem."""

    size: int  # kernels there are
    known: int = 0  # of which the store had a result before
    steps: list[Step] = field(default_factory=list)
    times: dict[int, float] = field(default_factory=dict)  # seconds by place, of all that has a whole measurement
    met: set[int] = field(default_factory=set)  # places of all that was measured, now or before, failures too
    finished: bool = False  # there was nothing left to try

    @property
    def tried(self) -> int:
        """Kernels, not trials: one may be tried with more and more rounds."""
        return len({step.trial.place for step in self.steps})

    @property
    def fastest(self) -> float | None:
        return min(self.times.values(), default=None)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """When the fastest so far was known, each time it changed."""
        best, points = math.inf, []
        for step in self.steps:
            if step.seen.seconds is not None and step.seen.seconds < best and step.trial.place in self.times:
                best = step.seen.seconds
                points.append((step.at, best))
        return points


def run(
    space: Space, way: Strategy, evaluate: Evaluate, seconds: float, *, rounds: int, clock: Clock = time.monotonic,
    known: Mapping[int, Seen] | None = None, price: Price | None = None,
) -> Trace:  # fmt: skip
    """Ask, evaluate and tell until the time is used up or nothing is left; `known` is told first, and costs nothing.

    Without a price a trial is expected to take as long as those of the batch before, and the first batch is not priced.
    """
    start = clock()
    trace = Trace(len(space), len(known or {}))

    def hear(trial: Trial, seen: Seen) -> None:
        way.tell(trial, seen)
        trace.met.add(trial.place)
        if seen.seconds is not None and seen.rounds >= rounds:
            trace.times[trial.place] = seen.seconds

    for place, seen in sorted((known or {}).items()):
        hear(Trial(place, seen.rounds), seen)
    costs = _Costs(price)
    while True:
        trials = list(way.ask())
        trace.finished = not trials
        left = seconds - (clock() - start)
        if left <= 0:
            return trace
        trials = costs.within(trials, left, least=0 if trace.met else 1)
        if not trials:
            return trace
        begun = clock()
        for trial, seen in zip(trials, evaluate(trials), strict=True):
            hear(trial, seen)
            trace.steps.append(Step(trial, seen, clock() - start))
        costs.took(clock() - begun)


class _Costs:
    """What trials are expected to take: their price, by as much as the batch before took more or less than its own."""

    def __init__(self, price: Price | None) -> None:
        self._price: Price = price or (lambda trials: range(1, len(trials) + 1))
        self._scale = 1.0 if price is not None else 0.0
        self._begun_price = 0.0  # the price of the batch that was begun

    def within(self, trials: Sequence[Trial], left: float, least: int) -> list[Trial]:
        """The first ones that are expected to end in time, `least` of them in any case."""
        prices = list(self._price(trials))
        kept = list(trials[: max(least, sum(self._scale * price <= left for price in prices))])
        self._begun_price = max(1e-9, float(prices[len(kept) - 1])) if kept else 0.0
        return kept

    def took(self, seconds: float) -> None:
        self._scale = max(1e-9, seconds) / self._begun_price


# -- how far from the best ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Regret:
    """How much longer the kernel found takes than better ones that are known, or may be.

    `store`: against the fastest that any sweep or search has ever measured on this problem, device and threads.
    `again`, `again_p90`: what a search of as many kernels, drawn from those that this one measured, would be behind
    the fastest of them, on average and in one of ten cases.  Large where one lucky kernel leads: then a longer search
    may well find another.  It says nothing of kernels that are unlike all that were measured.
    `unseen`: kernels that were not measured.  `better`: how many of them are expected to be faster at most, which is
    known of an order by chance alone: of n measured and one more, each is as likely to be the fastest.
    """

    store: float | None
    again: float | None
    again_p90: float | None
    unseen: int
    better: float | None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("store", "again", "again_p90", "unseen", "better")}


def regret(trace: Trace, elsewhere: Iterable[float], *, by_chance: bool, seed: int = 0) -> Regret:
    """Of a search; `elsewhere` are times that the store has of the problem."""
    times = np.array(sorted(trace.times.values()))
    unseen = trace.size - len(trace.met | trace.times.keys())
    if not len(times):
        return Regret(None, None, None, unseen, None)
    best = float(times[0])
    draw = np.random.default_rng(seed)
    least = times[draw.integers(0, len(times), (RESAMPLED, len(times))).min(axis=1)] / best - 1
    luck = len(times) > 1  # one kernel drawn from one says nothing
    return Regret(
        max(0.0, best / min([best, *elsewhere]) - 1),
        float(least.mean()) if luck else None,
        float(np.quantile(least, 0.9)) if luck else None,
        unseen,
        unseen / (len(times) + 1) if by_chance else None,
    )


# -- through a sweep ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """What was asked for."""

    name: str  # of the strategy
    budget: float  # seconds, for all problems
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What came of one problem."""

    item: Item
    trace: Trace
    regret: Regret

    def to_dict(self, search: Search) -> dict[str, Any]:
        trace = self.trace
        return {
            "strategy": search.name, "budget": search.budget, "seed": search.seed, "kernels": trace.size,
            "tried": trace.tried, "trials": len(trace.steps), "known": trace.known, "finished": trace.finished,
            "curve": trace.curve, "regret": self.regret.to_dict(),
        }  # fmt: skip


OnRow = Callable[["Result"], None]


class Searching:
    """A search over the problems of a sweep's work, each over all its kernels."""

    def __init__(self, registry: Registry, sweep: Sweep, search: Search) -> None:
        self.registry, self.sweep, self.search = registry, sweep, search
        self.rounds = sweep.options.method.rounds
        self.prices = Prices(sweep.op.name, sweep.target, sweep.threads, sweep.options.jobs)

    def run(self, work: Work, on_row: OnRow | None = None, on_build: Any = None) -> list[SearchResult]:
        """One problem after another."""
        end = time.monotonic() + self.search.budget
        results = []
        for index, item in enumerate(work.all_items):
            share = (end - time.monotonic()) / (len(work.all_items) - index)
            results.append(self.search_item(item, share, on_row, on_build))
        return results

    def search_item(
        self, item: Item, seconds: float, on_row: OnRow | None = None, on_build: Any = None
    ) -> SearchResult:
        space = self.space(item)
        way = strategy(self.search.name, space, self.search.seed, self.rounds)
        known = self._known(item, way)
        trace = run(
            space, way, self._evaluate(item, on_row, on_build), seconds, rounds=self.rounds, known=known,
            price=self._price(item),
        )  # fmt: skip
        chance = isinstance(way, Random) and _by_chance(trace, way)
        return SearchResult(item, trace, regret(trace, self._elsewhere(item), by_chance=chance, seed=self.search.seed))

    def space(self, item: Item) -> Space:
        """The kernels of a problem, beginning with the one that dispatch takes now."""
        present = self.registry.select(item.problem, strict=False).stages[0].spec.digest
        start = [place for place, spec in enumerate(item.specs) if spec.digest == present]
        return Space(item.specs, start, lambda places: self._expected(item, [item.specs[place] for place in places]))

    def _expected(self, item: Item, specs: Sequence[Any]) -> Sequence[float]:
        """What dispatch predicts: a learned model where one knows them, else the estimate."""
        arch, threads = self.registry.arch, self.sweep.threads or 1
        estimate = backend(arch.backend).estimate
        served = [(spec, estimate(spec, item.problem, threads)) for spec in specs]
        verdict = learned.verdict(arch, item.problem, threads, served) if learned.asked() else None
        predicted = learned.predicted(served, verdict)
        return [predicted.get(spec.digest, seconds) for spec, seconds in served]

    def _at(self, rounds: int) -> Sweep:
        """The same sweep with other rounds."""
        if rounds == self.rounds:
            return self.sweep
        options = self.sweep.options
        return Sweep(
            self.sweep.op, self.sweep.target, self.sweep.store,
            replace(options, method=replace(options.method, rounds=rounds)), self.sweep.worker_pool,
        )  # fmt: skip

    def _known(self, item: Item, way: Strategy) -> dict[int, Seen]:
        """What the store has by this protocol, and of a halving by its smaller numbers of rounds."""
        places = {spec.digest: place for place, spec in enumerate(item.specs)}
        seen: dict[int, Seen] = {}
        for rounds in way.rungs() if isinstance(way, Halving) else [self.rounds]:
            for row in self._at(rounds).results(item):
                if row.status != OK and self.sweep.options.retry:
                    continue
                seen[places[row.kernel.digest]] = _seen(row, rounds)
        return seen

    def _evaluate(self, item: Item, on_row: OnRow | None, on_build: Any) -> Evaluate:
        def evaluate(trials: Sequence[Trial]) -> Sequence[Seen]:
            rounds = trials[0].rounds
            specs = tuple(item.specs[trial.place] for trial in trials)
            rows: dict[str, Result] = {}

            def heard(row: Result, _: Any) -> None:
                rows[row.kernel.digest] = row
                if on_row is not None:
                    on_row(row)

            self._at(rounds).run(Work((Item(item.problem, specs),), 0), on_row=heard, on_build=on_build)
            return [_seen(rows.get(spec.digest), rounds) for spec in specs]

        return evaluate

    def _price(self, item: Item) -> Price:
        """What a batch takes: compilers, then runs, and the wait for others where they are at work now."""
        options, worker_pool = self.sweep.options, self.sweep.worker_pool
        wait = options.patience if worker_pool.on_host and (quiet.busy() or 0.0) > quiet.QUIET else 0.0

        def price(trials: Sequence[Trial]) -> list[float]:
            specs = [item.specs[trial.place] for trial in trials]
            method = replace(options.method, rounds=max(trial.rounds for trial in trials)) if trials else options.method
            parts = zip(self.prices.builds(specs), self.prices.batches(item.problem, specs, method), strict=True)
            return [wait + build + run for build, run in parts]

        return price

    def _elsewhere(self, item: Item) -> list[float]:
        """Every time that the store has of the problem on this device with these threads, by whatever protocol."""
        here = self.sweep.worker_pool.machine["fingerprint"]
        return [
            row.seconds
            for row in self.sweep.store.of_problem(self.sweep.op.name, plain(item.problem))
            if row.status == OK and row.seconds is not None
            and (row.device.get("fingerprint"), row.threads) == (here, self.sweep.threads)
        ]  # fmt: skip


def _by_chance(trace: Trace, way: Random) -> bool:
    """Whether all that was measured is the beginning of the order by seed, but for where a search begins."""
    measured = trace.met - set(way.space.start)
    return measured <= set(way.order[: len(measured) + len(way.space.start)])


def _seen(row: Result | None, rounds: int) -> Seen:
    if row is None or row.status != OK or row.seconds is None:
        return Seen(None, 0.0, rounds)
    return Seen(row.seconds, UNKNOWN_SPREAD if row.spread is None else row.spread, rounds)
