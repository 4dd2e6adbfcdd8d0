"""Learned selection: models as data, and what they say of kernels on a problem.

A model predicts seconds: rough(problem) * ahead(estimate) * exp(forest(features)), where `rough` is a start, a time a
byte and a time an operation, and `ahead` a power (0: none) of a kernel's estimate over the lowest.  It is one file:
arrays of numbers and a card in JSON (what it was trained on, how good it is, for which devices).  Nothing of it is
executed, and one whose digest, features or arrays do not fit is an error that says so.

A model speaks where it was trained: for its op and target, on a device it knows, for signatures it has seen and
problems within the range of its training.  Elsewhere it says why not, and the estimate decides.  Of the kernels it
orders those whose estimate is within `far` of the lowest: it was trained on no others, and need not save the hopeless.
Kernels with words it has not seen (newer than the model) are set beside the one it would choose of the others, by what
the estimate says of both.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright import events, jsontext, ops, settings
from tilewright.arch import arch as arch_by_name
from tilewright.arch.host import speaking_of
from tilewright.backends.base import backend
from tilewright.errors import ModelError, TilewrightError
from tilewright.native.features import Features, features
from tilewright.native.library import may_come
from tilewright.ops.base import KernelSpec, plain
from tilewright.ops.engine import engine
from tilewright.ops.features import ALIGNED, ESTIMATE, MOST_POOLS, MOST_ROWS, Frame, Pool
from tilewright.runtime.trees import BySets, Desk, Forest, Ranks, by_sets

FORMAT = 2
ENDING = ".twmodel"
MOST_BYTES = 16 << 20
_ARRAYS = ("nodes", "roots", "depths", "low", "high")
# What reading a file that is none of ours, or was damaged, may end in.
_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, EOFError, OverflowError, MemoryError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip

Array = np.ndarray[Any, Any]

_OUTDATED = "the analytic estimate, which it looks at, has changed since it was trained: train it again"
_MOST = 500.0  # of a card's logarithms: more than any model has, less than overflows
_SAME_ESTIMATE = 1e-6  # compilers of NumPy may round another way


@dataclass(frozen=True)
class Card:
    """What a model is for, what it was made from and how good it is."""

    op: str
    targets: tuple[str, ...]  # archs
    devices: tuple[Mapping[str, Any], ...]  # identities: a device with the same words is known
    signatures: tuple[str, ...]  # the words of signatures it has seen (`ops.features.signature_words`)
    columns: tuple[str, ...]
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
class Asked:
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
        self.name = card.name  # what it is told by; one that ships: what `learn` finds it by
        self._ranks: dict[int, tuple[Pool, Ranks]] = {}  # of kernels' own features, as the forest asks for them
        self._native: dict[int, Features | None] = {}  # what fills in features of those kernels with a problem
        self._strange: dict[str, str] = {}  # by a kernel's digest: words of its signature that were not seen

    @cached_property
    def frame(self) -> Frame:
        op = ops.op(self.card.op)
        return Frame(engine(op), op.schedules, self.card.vocabulary, estimated=ESTIMATE in self.card.columns)

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
        known = {name: _number(one["mean"], 0.0) for name, one in others.items() if isinstance(one, Mapping)}
        if not isinstance(learned, Mapping) or not known:
            return ""  # trained before cards told
        mine, (best, theirs) = _number(learned["mean"], 0.0), max(known.items(), key=lambda one: one[1])
        told = f"on problems it had not seen its choices reached {mine:.1%} of the fastest, {best}'s {theirs:.1%}"
        return "" if mine >= theirs else f"{told}: train it on more"

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

    def told(
        self, specs: Sequence[KernelSpec], problem: Any, units: int, estimates: Array, device: Mapping[str, Any]
    ) -> Array | str:
        """The seconds it predicts; or why it says nothing."""
        silent = self.silent(specs[0], device)
        if silent:
            return silent
        pool = self.frame.pool(specs, units)
        # The kernels of a selection have one signature, and perhaps several archs.
        silent = next((text for one in pool.archs[1:] if (text := self.silent(one, device))), "")
        if silent:
            return silent
        return self.told_of(pool, problem, units, estimates, None)

    def told_of(self, pool: Pool, problem: Any, units: int, estimates: Array, served: Array | None) -> Array | str:
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
        asked = self._asked(pool, problem, units, known)
        return self.outside(asked) or self._beside(self.seconds(asked, pool, self.near(known)), list(new), estimates)

    def _asked(self, pool: Pool, problem: Any, units: int, estimates: Array) -> Asked:
        """A question with its features, by the selection library where that knows the op's."""
        sets = self._by_sets
        native = self._native.get(id(pool)) if sets is not None else None
        if sets is not None and native is None and id(pool) not in self._native:
            columns = self.frame.problem_columns, self.frame.interaction_columns
            native = features(self.card.op, pool.fields, len(pool.specs), units, columns)
            if native is not None or not may_come():
                self._kept(pool, sets)  # which keeps the pool, too
                self._native[id(pool)] = native
        if sets is None or native is None:
            return Asked(problem, units, self.frame.of_problem(problem), estimates)
        desk = sets.desk(len(self.frame.problem_columns), self._kept(pool, sets), self.frame.both_count)
        native.fill(problem, desk.question.problem, desk.question.both)
        if self.frame.estimated:
            np.divide(estimates, estimates.min(), out=desk.both[-1])
        return Asked(problem, units, desk.problem, estimates, desk)

    def _kept(self, pool: Pool, sets: BySets) -> Ranks:
        """What the forest asks of kernels alone, worked out once for them."""
        kept = self._ranks.get(id(pool))
        if kept is None:
            if len(self._ranks) >= MOST_POOLS:
                self._ranks.clear()
                self._native.clear()
            first = len(self.frame.problem_columns)
            kept = self._ranks[id(pool)] = pool, sets.ranks(first, pool.block.T)
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
        if not any(same_device(one, device) for one in self.card.devices):
            known = "; ".join(", ".join(f"{name} {value}" for name, value in one.items()) for one in self.card.devices)
            return f"this device is none it knows ({known})"
        if self.outdated or self.unsure:
            return self.outdated or self.unsure
        if (strange := self._strange.get(spec.digest)) is None:
            new = [one for one in self.frame.signature_words(spec.signature) if one not in self._signatures]
            if len(self._strange) >= MOST_ROWS:
                self._strange.clear()
            strange = self._strange[spec.digest] = f"it has not seen {', '.join(new)}" if new else ""
        return strange

    def outside(self, asked: Asked) -> str:
        """Which feature of a problem lies beyond its training; empty where none does."""
        (low, high), first = self._range, asked.features
        beyond = (first < low) | (first > high)
        if not beyond.any():
            return self._other_units(asked.units)
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
        found: Array = (estimates <= self.card.far * estimates.min()).nonzero()[0]
        return found

    def seconds(self, asked: Asked, pool: Pool, near: Array) -> Array:
        """Of all kernels; those it was not asked about take for ever."""
        found = np.full(len(pool.specs), np.inf)
        with np.errstate(all="ignore"):
            scores = self._scores(asked, pool, near)
            if self.card.trust and asked.estimates is not None:  # the lowest is among them
                scores = scores + ahead(self.card.trust, asked.estimates[near])
            found[near] = rough(self.card.rough, asked.problem) * np.exp(scores)
        return found

    def _scores(self, asked: Asked, pool: Pool, near: Array) -> Array:
        sets = self._by_sets
        if sets is None:
            guessed = None if asked.estimates is None else asked.estimates[near]  # the lowest is among them
            specs = [pool.specs[one] for one in near]
            return self.forest.score(self.frame.rows(specs, asked.problem, asked.units, guessed))
        ranks, desk = self._kept(pool, sets), asked.desk
        if desk is None:
            desk = sets.desk(len(asked.features), ranks, self.frame.both_count)
            desk.problem[:] = asked.features
            self.frame.of_both(pool, asked.problem, asked.units, asked.estimates, desk.both)
        desk.asked[: len(near)] = near
        return sets.ask(desk, ranks, len(near), asked.units)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a model says of kernels on a problem, or why it says nothing."""

    seconds: Array | None = None
    sigma: float = 0.0
    model: str = ""
    why_not: str = ""
    unseen: Collection[int] = ()  # the places of kernels that only the estimate tells of


def rough(parts: Sequence[float], problem: Any) -> float:
    """What a problem takes, whatever the kernel: to a factor of a few."""
    start, byte, operation = parts
    return start + byte * float(problem.bytes) + operation * float(problem.flops)


def ahead(trust: float, estimates: Array) -> Array:
    """What is said of kernels before any tree is asked, as a logarithm: so much of what the estimate says."""
    found: Array = trust * np.log(estimates / estimates.min())
    return found


def same_device(known: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Whether a device is the one of a card: in the words that the card has."""
    return bool(known) and all(device.get(name) == value for name, value in known.items())


# -- files -----------------------------------------------------------------------------------------------------


def digest_of(card: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    found = hashlib.sha256(json.dumps(card, sort_keys=True).encode())
    for name in _ARRAYS:
        found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def write(path: Path, model: Model) -> None:
    """One file: a zip of arrays and the card."""
    from tilewright.codegen.folder import write_if_changed

    card = plain(model.card) | {"devices": [dict(one) for one in model.card.devices]}
    card |= {"probes": [dict(one) for one in model.card.probes]}
    card |= {"vocabulary": {name: list(words) for name, words in model.card.vocabulary.items()}}
    card = json.loads(json.dumps(card, sort_keys=True, default=dict))
    forest = model.forest
    arrays = {"nodes": forest.nodes, "roots": forest.roots, "depths": forest.depths, "low": model.low,
              "high": model.high}  # fmt: skip
    head = {"format": FORMAT, "digest": digest_of(card, arrays), "card": card}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "card.json", json.dumps(head, indent=1, sort_keys=True).encode())
        for name in _ARRAYS:
            data = io.BytesIO()
            np.lib.format.write_array(data, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            _add(archive, f"{name}.npy", data.getvalue())
    write_if_changed(path, out.getvalue())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same model is the same file
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def read(data: bytes, source: str) -> Model:
    """A model from the bytes of its file; anything that does not fit is a ModelError."""
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(one.file_size > MOST_BYTES for one in archive.infolist()):
                raise ValueError("it unpacks to more than a model holds")
            head = json.loads(archive.read("card.json"))
            arrays = {name: _array(archive.read(f"{name}.npy")) for name in _ARRAYS}
        return _model(head, arrays)
    except TilewrightError:
        raise
    except _DAMAGE as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise _damaged(source, told) from None


def read_file(path: Path) -> Model:
    """The same of a file; one that may never end (a pipe, a device) is not waited for."""
    try:
        data = jsontext.read(path)
    except ValueError as error:
        raise _damaged(str(path), str(error)) from None
    return read(data, str(path))


def _damaged(source: str, told: str) -> ModelError:
    return ModelError(
        f"{source} is no model that can be used: {told}",
        rule="model-file",
        value=source,
        remedy="train it again (`tilewright learn train`), or remove it",
    )


def _array(data: bytes) -> Array:
    found: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return found


def _rough(parts: Any) -> tuple[float, float, float]:
    start, byte, operation = (float(one) for one in parts)
    if not (0 < start < np.inf and 0 <= byte < np.inf and 0 <= operation < np.inf):
        raise ValueError("it holds times that are none")
    return start, byte, operation


def _card(data: Mapping[str, Any]) -> Card:
    """A card as read; what selection relies on is of its kind, whoever wrote the file."""
    if not all(isinstance(data[name], dict) for name in ("vocabulary", "data", "metrics", "versions")):
        raise ValueError("its card is none")
    return Card(
        **{
            **data,
            **{name: _words(data[name]) for name in ("targets", "signatures", "columns")},
            "op": _words([data["op"]])[0],
            "devices": _objects(data["devices"]),
            "rough": _rough(data["rough"]),
            "base": _number(data["base"], -_MOST),
            "far": _number(data["far"], 1.0, 1e100),
            "sigma": _number(data["sigma"], 0.0),
            "probes": _objects(data.get("probes", [])),
            "trust": _number(data.get("trust", 0.0), 0.0, 1.0),
            "vocabulary": {name: _words(words) for name, words in data["vocabulary"].items()},
        }
    )


def _words(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"{given!r:.60} are no words")
    return tuple(given)


def _objects(given: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError(f"{given!r:.60} are no descriptions")
    return tuple(given)


def _number(given: Any, least: float, most: float = _MOST) -> float:
    found = float(given)
    if isinstance(given, bool) or not least <= found <= most:
        raise ValueError(f"{given!r:.60} is no number that a model has")
    return found


def _model(head: Any, arrays: Mapping[str, Array]) -> Model:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"its format is {head.get('format') if isinstance(head, dict) else head!r}, not {FORMAT}")
    data = head["card"]
    if head["digest"] != digest_of(data, arrays):
        raise ValueError("its digest is not that of its content: it was changed after it was written")
    card = _card(data)
    width = len(card.columns)
    forest = Forest(arrays["nodes"], arrays["roots"], arrays["depths"], card.base)
    wrong = forest.wrong(width)
    if wrong or arrays["low"].shape != (width,) or arrays["high"].shape != (width,):
        raise ValueError(wrong or "its ranges do not fit its features")
    model = Model(card, forest, arrays["low"].astype(np.float64), arrays["high"].astype(np.float64))
    if model.frame.columns != card.columns:
        odd = sorted(set(model.frame.columns) ^ set(card.columns)) or ["their order"]
        raise ValueError(f"its features are not those of this version: {', '.join(odd[:4])}")
    if card.trust and not model.frame.estimated:
        raise ValueError("it begins from an estimate that it does not know")
    _ = model.unsure  # a card that holds something else than scores is told now
    return model


# -- which are at hand -----------------------------------------------------------------------------------------


def folder() -> Path:
    """Where a user's own models lie; those there come before the ones that ship."""
    return settings.current().cache_dir / "models"


def shipped_names() -> list[str]:
    """Of the models that ship, in the order they are asked."""
    place = resources.files("tilewright.dispatch").joinpath("models")
    files = [one.name for one in place.iterdir()] if place.is_dir() else []
    return sorted(one.removesuffix(ENDING) for one in files if one.endswith(ENDING))


@lru_cache(maxsize=32)
def shipped(name: str) -> Model:
    """One of them; a LookupError where there is none of that name."""
    if name not in shipped_names():
        raise LookupError(name)
    file = f"{name}{ENDING}"
    found = read(resources.files("tilewright.dispatch").joinpath("models", file).read_bytes(), file)
    found.name = name
    return found


@lru_cache(maxsize=1)
def _shipped() -> tuple[Model, ...]:
    return tuple(map(shipped, shipped_names()))


class _Own(NamedTuple):
    """A user's models by the file they are in, and what is wrong with files that hold none."""

    models: Mapping[Path, Model]
    damaged: Mapping[Path, str]


@lru_cache(maxsize=8)
def _read_own(place: Path, stamp: tuple[tuple[str, int, int], ...]) -> _Own:
    models, damaged = {}, {}
    for name, _, _ in stamp:
        try:
            models[place / name] = read_file(place / name)
        except (TilewrightError, OSError) as error:  # of an op that is not installed, too
            events.emit(events.Warned("model-file", str(error)))
            damaged[place / name] = error.message if isinstance(error, TilewrightError) else str(error)
    return _Own(models, damaged)


def _own() -> _Own:
    place, stamp = folder(), []
    try:
        for one in sorted(place.glob(f"*{ENDING}")):
            status = one.stat()
            stamp.append((one.name, status.st_mtime_ns, status.st_size))
    except OSError:
        stamp = []
    return _read_own(place, tuple(stamp))


def at_hand() -> tuple[Model, ...]:
    """The user's models, then those that ship."""
    return (*_own().models.values(), *_shipped())


def damaged() -> list[str]:
    """Files in the folder of a user's models that hold none, each with the reason: other models are asked instead."""
    return [f"{told}; it is not asked" for told in _own().damaged.values()]


def shadowing(op: str = "", target: str = "") -> list[str]:
    """A user's models that are asked before one that ships, of an op and for a target where these are named."""
    found = []
    for path, one in _own().models.items():
        if op and one.card.op != op:
            continue
        mine = {target} & set(one.card.targets) if target else set(one.card.targets)
        hidden = [other.name for other in _shipped() if other.card.op == one.card.op and mine & set(other.card.targets)]
        if hidden:
            found.append(f"{path} is asked before {', '.join(hidden)}, which ships with this version")
    return found


def ask(
    models: Iterable[Model],
    specs: Sequence[KernelSpec],
    problem: Any,
    units: int,
    estimates: Sequence[float],
    device: Mapping[str, Any],
) -> Verdict:
    """What the first model that knows these kernels says; else why none does."""
    guessed = np.asarray(estimates, np.float64)
    whys: dict[bool, str] = {}
    for model in models:
        if model.card.op != problem.op:
            continue
        told = model.told(specs, problem, units, guessed, device)
        if not isinstance(told, str):
            unseen = model.frame.pool(specs, units).new
            return Verdict(told, model.card.sigma, model.name, unseen=unseen)
        # What a model for this arch lacks says more than that another is for another.
        mine = any(one.arch in model.card.targets for one in specs)
        whys[mine] = whys.get(mine) or f"the model {model.name} says nothing: {told}"
    return Verdict(why_not=whys.get(True) or whys.get(False, ""))


Voices = tuple[tuple[Model, Pool], ...]


def voices(models: Iterable[Model], specs: Sequence[KernelSpec], units: int, device: Mapping[str, Any]) -> Voices:
    """The models that are not silent about these kernels, whatever the problem, in the order they are asked."""
    found = []
    for model in models:
        if model.card.op == specs[0].op and not model.silent(specs[0], device):
            pool = model.frame.pool(specs, units)
            if not any(model.silent(one, device) for one in pool.archs[1:]):
                found.append((model, pool))
    return tuple(found)


def ask_voices(known: Voices, problem: Any, units: int, estimates: Array, served: Array) -> Verdict | None:
    """What the first of them says of the kernels that serve a problem; None where none says anything."""
    for model, pool in known:
        told = model.told_of(pool, problem, units, estimates, served)
        if not isinstance(told, str):
            unseen = [at for at in pool.new if served[at]]
            return Verdict(told, model.card.sigma, model.name, unseen=unseen)
    return None
