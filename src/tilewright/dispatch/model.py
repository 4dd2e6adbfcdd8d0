"""Learned selection: what a model says of kernels on a problem (`model_files` reads and writes them).

A model predicts seconds: rough(problem) * ahead(estimate) * exp(forest(features)), where `rough` is a start, a time a
byte and a time an operation, and `ahead` a power (0: none) of a kernel's estimate over the lowest.  Its card says what
it was trained on, how good it is and for which devices.

A model speaks where it was trained: for its op and target, on a device it knows, for signatures it has seen and
problems within the range of its training.  Elsewhere it says why not, and the estimate decides.  Of the kernels it
orders those whose estimate is within `far` of the lowest: it was trained on no others, and need not save the hopeless.
Kernels with words or fields it has not seen (newer than the model) are set beside the one it would choose of the
others, by what the estimate says of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilewright import ops
from tilewright.arch import arch as arch_by_name
from tilewright.arch.host import speaking_of
from tilewright.backends.base import backend
from tilewright.dataclass import dataclass
from tilewright.dispatch.learned import same_device
from tilewright.errors import TilewrightError
from tilewright.native.features import Features, features
from tilewright.ops.base import KernelSpec
from tilewright.ops.engine import engine
from tilewright.ops.features import ALIGNED, ESTIMATE, MOST_POOLS, MOST_ROWS, UNITS, Frame, Pool
from tilewright.runtime.trees import BySets, Desk, Forest, KernelFeatures, by_sets

Array = np.ndarray[Any, Any]

_OUTDATED = "the analytic estimate, one of its features, has changed since it was trained: train it again"
MOST = 500.0  # of a card's logarithms: more than any model has, less than overflows
_SAME_ESTIMATE = 1e-6  # compilers of NumPy may round another way


@dataclass(frozen=True)
class Card:
    """What a model is for, what it was made from and how good it is."""

    op: str
    targets: tuple[str, ...]  # archs
    devices: tuple[Mapping[str, Any], ...]  # identities: a device with the same words is known
    signatures: tuple[str, ...]  # the words of signatures it has seen (`ops.features.signature_words`)
    columns: tuple[str, ...]  # the names of its features
    vocabulary: Mapping[str, tuple[str, ...]]
    base: float
    rough: tuple[float, float, float]  # seconds of a start, of a byte and of an operation
    far: float  # of the lowest estimate of a problem: kernels beyond it are not asked about
    sigma: float  # of the logarithm of predicted over measured time, on problems it was not trained on
    data: Mapping[str, Any]  # digest of the training rows, their number, problems, sweeps
    metrics: Mapping[str, Any]
    versions: Mapping[str, str]
    # Of a model that sees the estimate: what it was in training, for some kernels and problems.
    probes: tuple[Mapping[str, Any], ...] = ()
    trust: float = 0.0  # the power of a kernel's estimate over the lowest that its forest begins from

    @property
    def name(self) -> str:
        return f"{self.op}-{'-'.join(self.targets)}"


@dataclass(frozen=True, slots=True)
class Query:
    """What a question to a model is about, beside kernels."""

    problem: Any
    units: int
    features: Array  # the problem's
    estimates: Array | None = None  # of all kernels there are, where the model sees them
    desk: Desk | None = None  # where features of the problem and of both are, where the selection library filled it


class Model:
    """A card and its forest."""

    def __init__(self, card: Card, forest: Forest, low: Array, high: Array) -> None:
        self.card, self.forest, self.low, self.high = card, forest, low, high
        self.name = card.name  # what messages call it; one that ships: what `learn` finds it by
        self.ships = False  # with this version, whose estimate it was trained on: a test asks its probes
        self._own: dict[int, tuple[Pool, KernelFeatures]] = {}  # of kernels, as the forest asks for them
        self._native: dict[int, Features | None] = {}  # what fills in features of those kernels with a problem
        self._strange: dict[str, str] = {}  # by a kernel's digest: words of its signature that were not seen

    @cached_property
    def frame(self) -> Frame:
        part, columns, vocabulary = engine(ops.op(self.card.op)), self.card.columns, self.card.vocabulary
        # What is none of these is a field of a schedule: of which, all backends together would have to say.
        others = {*part.problem_feature_names, *getattr(part, "kernel_feature_names", ()), *part.interaction_names}
        mine = tuple(name for name in columns if name not in others and name not in (ESTIMATE, UNITS))
        always = [name for name in mine if name in vocabulary and self.low[columns.index(name)] >= 0]
        return Frame(part, mine, vocabulary, estimated=ESTIMATE in columns, always=always)

    @cached_property
    def outdated(self) -> str:
        """Why a model that sees the estimate says nothing any more; empty where it may."""
        if not self.frame.estimated:
            return ""
        with speaking_of(self.card.devices[0] if self.card.devices else {}):
            return "" if self.card.probes and all(map(self._as_it_was, self.card.probes)) else _OUTDATED

    @cached_property
    def unsure(self) -> str:
        """Why a model says nothing anywhere: the estimate, or a model that was there before it, chose better where
        none of them had seen the answer (`learn train` judges them)."""
        scores = self.card.metrics
        others = {"the estimate": scores.get("estimate"), **scores.get("others", {})}
        learned = scores.get("cross_validation")
        known = {
            name: checked_number(score["mean"], 0.0) for name, score in others.items() if isinstance(score, Mapping)
        }
        if not isinstance(learned, Mapping) or not known:
            return ""  # trained before cards had it
        mine, (best, theirs) = checked_number(learned["mean"], 0.0), max(known.items(), key=lambda score: score[1])
        scores_text = (
            f"on problems it had not seen its choices reached {mine:.1%} of the fastest, {best}'s {theirs:.1%}"
        )
        return "" if mine >= theirs else f"{scores_text}: train it on more"

    def _as_it_was(self, probe: Mapping[str, Any]) -> bool:
        op = ops.op(self.card.op)
        try:
            problem, spec = op.problem_from_dict(dict(probe["problem"])), op.spec_from_dict(dict(probe["kernel"]))
            if op.check(spec):
                return False  # an estimate is of kernels that can be
            family = backend(arch_by_name(spec.arch).backend)
            now = family.estimate(spec, problem, int(probe["threads"]) or 1)
            return bool(abs(now - float(probe["seconds"])) <= _SAME_ESTIMATE * abs(now))
        except (TilewrightError, LookupError, TypeError, ValueError, ArithmeticError):
            return False  # a kernel or problem of another version, or none at all

    @cached_property
    def _by_sets(self) -> BySets | None:
        return by_sets(self.forest, len(self.card.columns), len(self.frame.problem_columns))

    @cached_property
    def _signatures(self) -> frozenset[str]:
        return frozenset(self.card.signatures)

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """In which of a problem's features it speaks; alignment beyond what it has seen is nothing new."""
        names = self.frame.problem_columns
        free = np.array([name.startswith(ALIGNED) for name in names], bool)
        low, high = self.low[: len(names)] - 1e-6, self.high[: len(names)] + 1e-6
        return np.where(free, -np.inf, low), np.where(free, np.inf, high)

    @property
    def range_of_problem(self) -> tuple[Array, Array]:
        """The least and the most of each of a problem's features; infinite where it does not matter."""
        return self._range

    @cached_property
    def range_places(self) -> tuple[int, int]:
        """Where C reads the range."""
        self._range_kept = tuple(np.ascontiguousarray(bound, np.float64) for bound in self._range)
        low, high = self._range_kept
        return low.ctypes.data, high.ctypes.data

    def predict(
        self, specs: Sequence[KernelSpec], problem: Any, units: int, estimates: Array, device: Mapping[str, Any]
    ) -> Array | str:
        """The seconds it predicts; or why it says nothing."""
        silent = self.silent(specs[0], device)
        if silent:
            return silent
        pool = self.frame.pool(specs, units)
        # The kernels of a selection have one signature, and perhaps several archs.
        silent = next((text for spec in pool.archs[1:] if (text := self.silent(spec, device))), "")
        if silent:
            return silent
        return self.predict_pool(pool, problem, units, estimates, None)

    def predict_pool(self, pool: Pool, problem: Any, units: int, estimates: Array, served: Array | None) -> Array | str:
        """The same of kernels it is not silent about; where not all are `served`, estimates of others are infinite."""
        finite = estimates if served is None else estimates[served]
        if not finite.max() < np.inf:
            return "an estimate is no number"
        new = pool.new if served is None else {at: words for at, words in pool.new.items() if served[at]}
        if len(new) == len(finite):
            return f"it has not seen {', '.join(next(iter(new.values())))}"
        known = estimates
        if new:
            known = estimates.copy()
            known[list(new)] = np.inf
        query = self._query(pool, problem, units, known)
        if query.desk is not None:
            predicted = self._predicted(query, query.desk, pool)
            return predicted if isinstance(predicted, str) else self._beside(predicted, list(new), estimates)
        return self.outside(query) or self._beside(self.seconds(query, pool, self.near(known)), list(new), estimates)

    def _query(self, pool: Pool, problem: Any, units: int, estimates: Array) -> Query:
        """A question with its features, by the selection library where that knows the op's."""
        sets = self._by_sets
        native = self._filler(pool, units, sets) if sets is not None else None
        if sets is None or native is None:
            return Query(problem, units, self.frame.of_problem(problem), estimates)
        desk = sets.desk(len(self.frame.problem_columns), self._kept(pool, sets), self.frame.both_count)
        native.fill(problem, desk.question.problem, desk.question.both)
        self.frame.put_words(problem, desk.problem)
        if self.frame.estimated:
            np.divide(estimates, estimates.min(), out=desk.both[-1])
        return Query(problem, units, desk.problem, estimates, desk)

    def _filler(self, pool: Pool, units: int, sets: BySets) -> Features | None:
        """What fills in features of some kernels; None where the selection library does not know these columns."""
        native = self._native.get(id(pool))
        if native is None and id(pool) not in self._native:
            columns = self.frame.problem_columns, self.frame.interaction_columns
            native = features(pool.specs, pool.fields, units, columns)
            self._kept(pool, sets)  # which keeps the pool, too
            self._native[id(pool)] = native
        return native

    def in_c(self, pool: Pool, units: int) -> tuple[BySets, KernelFeatures, Features] | None:
        """What a choice in C needs of the model; None where it cannot be made there."""
        sets = self._by_sets
        native = self._filler(pool, units, sets) if sets is not None and not self._other_units(units) else None
        return None if sets is None or native is None else (sets, self._kept(pool, sets), native)

    def _predicted(self, query: Query, desk: Desk, pool: Pool) -> Array | str:
        """`outside` and `seconds` in one question to the library."""
        sets, card, (low, high) = self._by_sets, self.card, self.range_places
        assert sets is not None
        assert query.estimates is not None
        if other := self._other_units(query.units):
            return other
        estimates, start = np.ascontiguousarray(query.estimates, np.float64), rough(card.rough, query.problem)
        predicted = sets.predict(
            desk, self._kept(pool, sets), query.units, estimates, low, high, card.far, card.trust, start
        )
        return self.outside(query) if isinstance(predicted, int) else predicted

    def _kept(self, pool: Pool, sets: BySets) -> KernelFeatures:
        """What the forest asks of kernels alone, worked out once for them."""
        kept = self._own.get(id(pool))
        if kept is None:
            if len(self._own) >= MOST_POOLS:
                self._own.clear()
                self._native.clear()
            kept = self._own[id(pool)] = pool, sets.kernel_features(pool.block.T)
        return kept[1]

    def _beside(self, seconds: Array, new: list[int], estimates: Array) -> Array:
        """With those of kernels it has not seen: so much of the time of the one it would choose as of its estimate."""
        if new:
            best = int(seconds.argmin())
            seconds[new] = seconds[best] * estimates[new] / estimates[best]
        return seconds

    def silent(self, spec: KernelSpec, device: Mapping[str, Any]) -> str:
        """Why it says nothing of kernels like this one on a device; empty where it does."""
        if spec.arch not in self.card.targets:
            return f"it was trained for {', '.join(self.card.targets)}"
        if not any(same_device(known_device, device) for known_device in self.card.devices):
            return f"it was trained on {_differences(self.card.devices, device)}"
        why = self.unsure if self.ships else self.outdated or self.unsure
        if why:
            return why
        if (strange := self._strange.get(spec.digest)) is None:
            new = [word for word in self.frame.signature_words(spec.signature) if word not in self._signatures]
            if len(self._strange) >= MOST_ROWS:
                self._strange.clear()
            shown = ", ".join(map(self.frame.shown_word, new))
            strange = self._strange[spec.digest] = f"it has not seen {shown}" if new else ""
        return strange

    def outside(self, query: Query) -> str:
        """Which feature of a problem is beyond its training; empty where none is."""
        (low, high), first = self._range, query.features
        beyond = (first < low) | (first > high)
        if not beyond.any():
            return self._other_units(query.units)
        if new := self.frame.unknown_problem_words(query.problem):
            return f"it has not seen {', '.join(new)}"
        at = int(np.argmax(beyond))
        range_ = f"{self.low[at]:.3g} to {self.high[at]:.3g}"
        return f"{self.card.columns[at]} is {first[at]:.3g}, and it was trained on {range_}"

    def _other_units(self, units: float) -> str:
        """Threads, or multiprocessors, beyond those it was trained with."""
        low, high = float(self.low[-1]), float(self.high[-1])
        return (
            ""
            if low <= units <= high
            else f"the work is for {units:g} units, and it was trained on {low:g} to {high:g}"
        )

    def near(self, estimates: Array) -> Array:
        """The places of the kernels it is asked about."""
        places: Array = (estimates <= self.card.far * estimates.min()).nonzero()[0]
        return places

    def seconds(self, query: Query, pool: Pool, near: Array) -> Array:
        """Of all kernels; those it was not asked about take for ever."""
        seconds = np.full(len(pool.specs), np.inf)
        with np.errstate(all="ignore"):
            scores = self._scores(query, pool, near)
            if self.card.trust and query.estimates is not None:  # the lowest is among them
                scores = scores + ahead(self.card.trust, query.estimates[near])
            seconds[near] = rough(self.card.rough, query.problem) * np.exp(scores)
        return seconds

    def _scores(self, query: Query, pool: Pool, near: Array) -> Array:
        sets = self._by_sets
        if sets is None:
            guessed = None if query.estimates is None else query.estimates[near]  # the lowest is among them
            specs = [pool.specs[place] for place in near]
            return self.forest.score(self.frame.rows(specs, query.problem, query.units, guessed))
        own, desk = self._kept(pool, sets), query.desk
        if desk is None:
            desk = sets.desk(len(query.features), own, self.frame.both_count)
            desk.problem[:] = query.features
            self.frame.of_both(pool, query.problem, query.units, query.estimates, desk.both)
        desk.kernel_places[: len(near)] = near
        return sets.ask(desk, own, len(near), query.units)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a model says of kernels on a problem, or why it says nothing."""

    seconds: Array | None = None
    sigma: float = 0.0
    model: str = ""
    why_not: str = ""
    unseen: Collection[int] = ()  # the places of kernels that only the estimate knows


def checked_number(value: Any, least: float, most: float = MOST) -> float:
    """A number of a card, which anybody may have written."""
    number = float(value)
    if isinstance(value, bool) or not least <= number <= most:
        raise ValueError(f"{value!r:.60} is no number that a model has")
    return number


def rough(parts: Sequence[float], problem: Any) -> float:
    """What a problem takes, whatever the kernel: to a factor of a few."""
    start, byte, operation = parts
    return start + byte * float(problem.bytes) + operation * float(problem.flops)


def ahead(trust: float, estimates: Array) -> Array:
    """What is said of kernels before any tree is asked, as a logarithm: so much of what the estimate says."""
    logs: Array = trust * np.log(estimates / estimates.min())
    return logs


def device_words(device: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in device.items())


def _differences(known: Sequence[Mapping[str, Any]], device: Mapping[str, Any]) -> str:
    """The devices of a card and the one here, in the words in which they differ."""
    names = list(dict.fromkeys(name for each in known for name in each))
    differ = [name for name in names if name not in device or any(each.get(name) != device[name] for each in known)]
    cards = (device_words({name: each[name] for name in differ if name in each}) for each in known)
    here = device_words({name: device[name] for name in differ if name in device})
    return f"{'; '.join(filter(None, cards)) or 'no device'}; this device is {here or 'unknown'}"


def ask(
    models: Iterable[Model],
    specs: Sequence[KernelSpec],
    problem: Any,
    units: int,
    estimates: Sequence[float],
    device: Mapping[str, Any],
) -> Verdict:
    """What the first model that knows these kernels says; else why the first that was trained for their arch does not.

    Models of other archs are passed over without a word: every target would name those of some other device.
    """
    guessed = np.asarray(estimates, np.float64)
    why_not = ""
    for model in models:
        if model.card.op != problem.op:
            continue
        predicted = model.predict(specs, problem, units, guessed, device)
        if not isinstance(predicted, str):
            unseen = model.frame.pool(specs, units).new
            return Verdict(predicted, model.card.sigma, model.name, unseen=unseen)
        if not why_not and any(spec.arch in model.card.targets for spec in specs):
            why_not = f"the model {model.name} is not used: {predicted}"
    return Verdict(why_not=why_not)


Voices = tuple[tuple[Model, Pool], ...]


def voices(models: Iterable[Model], specs: Sequence[KernelSpec], units: int, device: Mapping[str, Any]) -> Voices:
    """The models that are not silent about these kernels, whatever the problem, in the order they are asked."""
    vocal = []
    for model in models:
        if model.card.op == specs[0].op and not model.silent(specs[0], device):
            pool = model.frame.pool(specs, units)
            if not any(model.silent(spec, device) for spec in pool.archs[1:]):
                vocal.append((model, pool))
    return tuple(vocal)


def ask_voices(known: Voices, problem: Any, units: int, estimates: Array, served: Array) -> Verdict | None:
    """What the first of them says of the kernels that serve a problem; None where none says anything."""
    for model, pool in known:
        predicted = model.predict_pool(pool, problem, units, estimates, served)
        if not isinstance(predicted, str):
            unseen = [at for at in pool.new if served[at]]
            return Verdict(predicted, model.card.sigma, model.name, unseen=unseen)
    return None
