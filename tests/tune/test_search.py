"""Searches on times that are made up: a known optimum, known noise, and a clock that stands still between trials."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pytest

from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec
from tilewright.tune import search, searching
from tilewright.tune.search import STRATEGIES, Halving, Random, Seen, Shape, Space, Trial, strategy

FULL = 16  # rounds of a whole measurement
BUILD, ROUND = 1.0, 0.25  # seconds of the clock


@dataclass(frozen=True)
class Made:
    """A schedule of no op there is."""

    axis_names: ClassVar[dict[str, tuple[str, ...]]] = {"tile": ("m", "n")}

    tile: tuple[int, int]
    depth: int
    order: str
    wide: bool


@lru_cache(maxsize=1)
def specs() -> list[KernelSpec]:
    sizes = (16, 32, 64, 128, 256)
    return [
        KernelSpec("made", "signature", Made((m, n), depth, order, wide), "arch")
        for m in sizes for n in sizes for depth in range(1, 7) for order in ("rows", "columns", "curve")
        for wide in (False, True)
    ]  # fmt: skip


def true_seconds(one: Made) -> float:
    """Smooth in the logarithms, with fields that matter only together; the optimum is 1 us."""
    m, n = np.log2(one.tile[0] / 64), np.log2(one.tile[1] / 128)
    slower = 0.15 * m * m + 0.1 * n * n + 0.08 * m * n + 0.03 * (one.depth - 4) ** 2
    slower += {"rows": 0.12, "columns": 0.2, "curve": 0.0}[one.order] * (1 + 0.5 * abs(m))
    slower += 0.1 if one.wide == (one.tile[1] < 128) else 0.0
    return float(1e-6 * (1 + slower))


BEST = 1e-6


class Machine:
    """Measures by a clock of its own; `noise` is that of one round."""

    def __init__(self, noise: float = 0.0, seed: int = 0, every: Sequence[KernelSpec] | None = None) -> None:
        self.specs = list(specs() if every is None else every)
        self.now, self.noise = 0.0, noise
        self.draw = np.random.default_rng(seed)
        self.rounds: dict[int, int] = {}  # spent on each kernel
        self.broken: set[int] = set()

    def clock(self) -> float:
        return self.now

    def evaluate(self, trials: Sequence[Trial]) -> list[Seen]:
        found = []
        for place, rounds in trials:
            self.now += (0 if place in self.rounds else BUILD) + ROUND * rounds
            self.rounds[place] = self.rounds.get(place, 0) + rounds
            if place in self.broken:
                found.append(Seen(None, 0.0, rounds))
                continue
            samples = true_seconds(self.specs[place].schedule) * np.exp(self.noise * self.draw.standard_normal(rounds))
            low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
            found.append(Seen(float(middle), float((high - low) / middle) if rounds >= 4 else 0.0, rounds))
        return found


START = 7  # a kernel that is far from the best


def searched(name: str, seconds: float, machine: Machine, seed: int = 1, **more: Any) -> searching.Trace:
    space = Space(machine.specs, [START], more.pop("expected", Space([]).expected))
    way = strategy(name, space, seed, FULL)
    return searching.run(space, way, machine.evaluate, seconds, rounds=FULL, clock=machine.clock, **more)


def behind(trace: searching.Trace, machine: Machine) -> float:
    """How much slower than the optimum the kernel that was found really is."""
    place = min(trace.times, key=trace.times.__getitem__)
    return true_seconds(machine.specs[place].schedule) / BEST - 1


def average(name: str, seconds: float, noise: float, seeds: Sequence[int] = range(8), **more: Any) -> float:
    found = []
    for seed in seeds:
        machine = Machine(noise, seed)
        found.append(behind(searched(name, seconds, machine, seed, **more), machine))
    return float(np.mean(found))


WHOLE = BUILD + ROUND * FULL  # of one kernel
BUDGET = 64 * WHOLE


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_search_is_the_same_for_the_same_seed_and_answers(name: str) -> None:
    one, again, other = (searched(name, BUDGET / 2, Machine(0.03, 5), seed) for seed in (3, 3, 4))
    assert one.steps == again.steps
    assert [step.trial for step in one.steps] != [step.trial for step in other.steps]


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_time_enough_everything_is_tried_once_and_the_best_is_found(name: str) -> None:
    few = specs()[::13]
    machine = Machine(0.0, 0, few)
    machine.broken = {2, 11}
    trace = searched(name, math.inf, machine)
    assert trace.finished
    assert set(machine.rounds) == set(range(len(few)))
    best = min(
        (one for one in range(len(few)) if one not in machine.broken), key=lambda one: true_seconds(few[one].schedule)
    )
    assert min(trace.times, key=trace.times.__getitem__) == best
    if name != "halving":
        assert set(machine.rounds.values()) == {FULL}


@pytest.mark.parametrize("name", STRATEGIES)
def test_none_ends_with_a_slower_kernel_than_dispatch_has(name: str) -> None:
    machine = Machine()
    trace = searched(name, 1.5 * WHOLE, machine)
    assert behind(trace, machine) <= true_seconds(machine.specs[START].schedule) / BEST - 1


@pytest.mark.parametrize("noise", [0.0, 0.04])
def test_guided_searches_beat_chance_in_the_same_time(noise: float) -> None:
    chance = average("random", BUDGET, noise)
    assert average("evolve", BUDGET, noise) < 0.6 * chance
    assert average("model", BUDGET, noise) < 0.6 * chance


def test_a_prediction_that_is_right_on_the_whole_is_used() -> None:
    """Times that are off by half, but in the right order on average."""
    wrong = np.random.default_rng(9).lognormal(0.0, 0.2, len(specs()))

    def expected(places: Sequence[int]) -> list[float]:
        return [3 * wrong[one] * true_seconds(specs()[one].schedule) for one in places]

    few = 16 * WHOLE
    assert average("model", few, 0.0, expected=expected) < average("model", few, 0.0)


def test_halving_beats_chance_where_measuring_is_what_costs() -> None:
    assert average("halving", BUDGET, 0.05) < average("random", BUDGET, 0.05)


def test_halving_spends_its_rounds_where_the_noise_hides_who_is_faster() -> None:
    machine = Machine(0.05, 3)
    trace = searched("halving", BUDGET, machine, 3)
    found = true_seconds(machine.specs[min(trace.times, key=trace.times.__getitem__)].schedule)
    slow = [rounds for one, rounds in machine.rounds.items() if true_seconds(machine.specs[one].schedule) > 1.5 * found]
    close = [
        rounds for one, rounds in machine.rounds.items() if true_seconds(machine.specs[one].schedule) < 1.03 * found
    ]
    assert len(slow) > 20
    assert np.mean(slow) < 6
    assert max(close) >= FULL
    assert np.mean(close) > 3 * np.mean(slow)


def rounds_of_a_bracket(noise: float, seed: int) -> int:
    machine = Machine(noise, seed)
    way = Halving(Space(machine.specs), seed, FULL)
    first: set[int] = set()
    while True:
        trials = way.ask()
        first = first or {one.place for one in trials}
        if not {one.place for one in trials} <= first:  # the next bracket
            return sum(machine.rounds.values())
        for trial, seen in zip(trials, machine.evaluate(trials), strict=True):
            way.tell(trial, seen)


def test_halving_wants_fewer_rounds_on_a_quiet_machine() -> None:
    quiet, usual, loud = (
        np.mean([rounds_of_a_bracket(noise, seed) for seed in range(10)]) for noise in (0.0, 0.05, 0.3)
    )
    assert quiet < usual < loud


# -- budgets, and what is known ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("seconds", [3 * WHOLE, 20.5 * WHOLE, 70 * WHOLE])
def test_time_is_kept_but_for_the_batch_that_is_under_way(name: str, seconds: float) -> None:
    machine = Machine(0.02)
    searched(name, seconds, machine)
    largest = max(Halving.SIZE, search.BATCH) * WHOLE
    assert machine.now <= max(seconds + WHOLE, largest)


def test_no_time_is_no_trial() -> None:
    machine = Machine()
    assert searched("random", 0.0, machine).steps == []
    assert machine.now == 0


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_known_is_told_and_not_measured_again(name: str) -> None:
    first = Machine()
    before = searched(name, BUDGET / 2, first)
    known = {step.trial.place: step.seen for step in before.steps if step.seen.rounds >= FULL}
    machine = Machine()
    after = searched(name, BUDGET / 2, machine, known=known)
    assert after.known == len(known) > 0
    assert not set(known) & set(machine.rounds)
    assert after.fastest is not None
    assert before.fastest is not None
    assert after.fastest <= before.fastest
    assert behind(after, machine) <= behind(before, first)


def test_a_kernel_that_failed_before_is_not_unseen_when_a_search_goes_on() -> None:
    space = Space(specs()[:10])
    way = strategy("random", space, 3, FULL)
    assert isinstance(way, Random)
    known = {place: Seen(None if place == way.order[0] else 2e-6, 0.0, FULL) for place in way.order[:4]}
    found = searching.run(space, way, lambda trials: [], 0.0, rounds=FULL, known=known)
    assert searching.regret(found, [], by_chance=True).unseen == 6
    assert searching._by_chance(found, way)


def test_one_whole_measurement_says_nothing_of_luck() -> None:
    found = searching.run(
        Space(specs()[:4]), strategy("random", Space(specs()[:4]), 3, FULL), lambda trials: [], 0.0, rounds=FULL,
        known={0: Seen(2e-6, 0.0, FULL), 1: Seen(1e-6, 0.0, FULL // 4)},
    )  # fmt: skip
    told = searching.regret(found, [1e-6], by_chance=False)
    assert (told.again, told.again_p90) == (None, None)
    assert told.store == pytest.approx(1.0)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("wrong", [0.5, 1.0, 3.0])
def test_a_budget_of_less_than_a_batch_is_kept_by_the_price(name: str, wrong: float) -> None:
    """Without one the first batch is begun whole, whatever it takes; a price may be wrong by a factor."""

    def price(trials: Sequence[Trial]) -> list[float]:
        return list(np.cumsum([wrong * (BUILD + ROUND * one.rounds) for one in trials]))

    budget = 2.5 * WHOLE
    over, kept = Machine(), Machine()
    searched(name, budget, over)
    trace = searched(name, budget, kept, price=price)
    assert over.now > budget or name == "halving", "whose first bracket is small"
    assert kept.now <= budget / min(1.0, wrong)
    assert trace.tried >= 1


def test_one_kernel_is_tried_whatever_it_costs_but_none_where_something_is_known() -> None:

    def dear(trials: Sequence[Trial]) -> list[float]:
        return [1e9 * (one + 1) for one in range(len(trials))]

    assert len(searched("random", 1.0, Machine(), price=dear).steps) == 1
    known = {3: Seen(2e-6, 0.0, FULL)}
    assert not searched("random", 1.0, Machine(), known=known, price=dear).steps


def test_the_curve_falls_and_ends_with_what_was_found() -> None:
    trace = searched("evolve", BUDGET, Machine(0.02))
    times = [seconds for _, seconds in trace.curve]
    assert times == sorted(times, reverse=True)
    assert times[-1] == trace.fastest


# -- regret ----------------------------------------------------------------------------------------------------------


def test_regret_against_the_store_and_against_luck() -> None:
    trace = searching.Trace(100, times={1: 2.0, 2: 3.0, 3: 3.0, 4: 4.0})
    found = searching.regret(trace, [2.5, 1.6], by_chance=True)
    assert found.store == pytest.approx(0.25)
    assert found.unseen == 96
    assert found.better == pytest.approx(96 / 5)
    # (3/4)^4 of the draws miss the fastest, and then two others are 50% behind it.
    assert found.again == pytest.approx(0.75**4 * 0.5 + 0.25**4 * 0.5, abs=0.04)
    assert found.again_p90 == pytest.approx(0.5)
    assert searching.regret(trace, [], by_chance=False).better is None
    even = searching.regret(searching.Trace(4, times=dict.fromkeys(range(4), 2.0)), [], by_chance=False)
    assert (even.store, even.again, even.again_p90, even.unseen) == (0.0, 0.0, 0.0, 0)
    nothing = searching.regret(searching.Trace(100), [1.0], by_chance=True)
    assert (nothing.store, nothing.again, nothing.better) == (None, None, None)


def test_of_a_search_by_chance_the_number_of_faster_kernels_left_is_told_right_on_average() -> None:
    every = np.array(sorted(true_seconds(one.schedule) for one in specs()))
    told, real, again, behind_ = [], [], [], []
    for seed in range(60):
        machine = Machine(0.0, seed)
        trace = searched("random", 40 * WHOLE, machine, seed)
        found = searching.regret(trace, [], by_chance=True, seed=seed)
        assert trace.fastest is not None
        told.append(found.better or 0.0)
        real.append(int((every < trace.fastest).sum()))
        again.append(found.again or 0.0)
        behind_.append(trace.fastest / BEST - 1)
    assert np.mean(told) == pytest.approx(np.mean(real), rel=0.35)
    # Luck within what was seen says the order of magnitude of what was missed, and mostly less.
    assert 0.1 < np.mean(again) / np.mean(behind_) < 1.5


# -- words, shapes -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_that_differ_least() -> None:
    shape = Shape(specs())
    one = specs()[400]
    far = shape.far(shape.codes[400])
    assert far[400] == 0
    nearest = [specs()[int(place)] for place in np.argsort(far, kind="stable")[1:8]]
    for other in nearest:
        changed = [
            each.name for each in dataclasses.fields(Made)
            if getattr(one.schedule, each.name) != getattr(other.schedule, each.name)
        ]  # fmt: skip
        assert len(changed) == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("120s", 120), ("90", 90), ("2m", 120), ("1.5h", 5400), (" 3 min ", 180)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert searching.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3s", "nan", "inf", "1e9", "3 weeks", "0.0s", "9" * 400, "s"])
def test_what_is_no_length_of_time_is_told(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        searching.seconds_of(text)
    assert caught.value.rule == "search-budget"


def test_a_way_that_is_not_known_is_told_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="evolve") as caught:
        strategy("evolv", Space(specs()), 0, FULL)
    assert caught.value.rule == "search-name"
