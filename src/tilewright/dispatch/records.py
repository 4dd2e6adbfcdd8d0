"""Measured choices: which kernel won a problem on which machine, with everything needed to believe it.

A record is a choice of the results' store (`dispatch.results`) with the times of all kernels that were measured for the
problem.  A store that cannot be read is never written over: a damaged one is set aside under another name, and one of a
newer version is left alone.  The JSON file that kept records before there was a store is taken over once, and stays.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, jsontext, lazy, notices, settings
from tilewright.arch import all_archs
from tilewright.dataclass import dataclass
from tilewright.dispatch import bundle_parts, looks
from tilewright.errors import StoreError, TilewrightError, counted
from tilewright.ops.base import plain
from tilewright.runtime.devices import HOST, device, device_of, identified

if TYPE_CHECKING:
    from tilewright.dispatch import results as stored
else:
    stored = lazy.module("tilewright.dispatch.results")

SCHEMA = 1  # of records as JSON: what `export` writes
STORE = "results-v1.db"  # of a cache folder

# Raised whenever records in memory change: what was chosen before may have a better answer now.
epoch = 0


def machine(target: str = "") -> dict[str, Any]:
    """What makes two measurements of a target comparable: the device it runs on, here; the host where none is named.

    Without a device of the target there is no fingerprint, and nothing measured anywhere counts.
    """
    identity = _identity(target)
    return {} if identity is None else identified(identity)


def _identity(target: str) -> Mapping[str, Any] | None:
    try:
        return device_of(target).identity if target else device(HOST).identity
    except TilewrightError:
        return None


@lru_cache(maxsize=64)
def _on_host(target: str) -> bool:
    known = all_archs().get(target)
    return known is None or known.backend == HOST.kind


@dataclass(frozen=True, slots=True)
class Timing:
    """One candidate's measurement."""

    digest: str
    name: str
    spec: Mapping[str, Any]
    seconds: float  # median
    spread: float | None  # interquartile range over the median; None where there are too few rounds
    error: float  # largest error over its bound


@dataclass(frozen=True, slots=True)
class Record:
    """One problem's measurement on one machine; `choice` is the digest of the winner."""

    op: str
    problem: Mapping[str, Any]
    threads: int
    target: str
    choice: str
    timings: tuple[Timing, ...]
    method: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any] = field(default_factory=dict)  # that of the target, here, where not given
    date: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if not self.machine:
            object.__setattr__(self, "machine", machine(self.target))

    @property
    def winner(self) -> Timing:
        return next(timing for timing in self.timings if timing.digest == self.choice)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        return {**data, "problem": dict(self.problem), "method": dict(self.method), "versions": dict(self.versions)}


_SHAPE: dict[str, type | tuple[type, ...]] = {
    "op": str, "problem": Mapping, "threads": int, "target": str, "choice": str, "timings": list,
    "method": Mapping, "versions": Mapping, "machine": Mapping, "date": (int, float),
}  # fmt: skip
_TIMING_SHAPE: dict[str, type | tuple[type, ...]] = {
    "digest": str, "name": str, "spec": Mapping, "seconds": (int, float), "spread": (int, float, type(None)),
    "error": (int, float),
}  # fmt: skip


_MOST_NUMBER = 1e11  # of seconds since 1970, and of anything else a record holds


def _shaped(what: str, data: Any, shape: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The fields we know of an object, each of its type; what another version added is left alone."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{what} is no object")
    for name, kind in shape.items():
        value = data.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{what} has no usable {name!r}")
        if isinstance(value, (int, float)) and not abs(value) < _MOST_NUMBER:  # NaN is none either
            raise ValueError(f"{what} has an impossible {name!r}")
        if isinstance(value, str):
            value.encode()  # half a character is a ValueError
    return {name: data.get(name) for name in shape}


def read_record(data: Any) -> Record:
    """A record back from `to_dict`; one that cannot be believed is a ValueError."""
    values = _shaped("the record", {"machine": {"fingerprint": ""}, "date": 0.0, **data}
                     if isinstance(data, Mapping) else data, _SHAPE)  # fmt: skip
    if not isinstance(values["machine"].get("fingerprint", ""), str):  # what it is known by
        raise ValueError("the record has no usable 'fingerprint'")
    timings = tuple(Timing(**_shaped("a timing", timing, _TIMING_SHAPE)) for timing in values["timings"])
    record = Record(**{**values, "timings": timings})
    if any(timing.seconds <= 0 for timing in timings):
        raise ValueError("a timing has no time")
    if all(timing.digest != record.choice for timing in timings):
        raise ValueError("its choice is none of the timings")
    return record


@lru_cache(maxsize=4096)  # a selection asks more than once
def _problem_digest(op: str, problem: Any) -> str:
    return stored.problem_digest(op, plain(problem))


def threads_of(target: str, threads: int) -> int:
    """Threads of the host matter to its own kernels only."""
    return threads if _on_host(target) else 0


def identity_key(record: Record) -> tuple[Any, ...]:
    """Two records with the same key measure the same thing: the later one counts."""
    threads = threads_of(record.target, record.threads)
    return (record.machine.get("fingerprint"), threads, record.op, record.target, stored.canonical(record.problem))


def _not_used(record: Record) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(record.date))
    return f"the measurement of {day}, which {record.winner.name} won, is not used"


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which words two machines differ."""
    names = [name for name in here if name != "fingerprint" and there.get(name) != here[name]]
    if not names:
        return "it does not say which device it was made on"
    return "made on another device: " + ", ".join(
        f"{name} {there.get(name, 'unknown')!s} there, {here[name]!s} here" for name in names
    )


class Records:
    """The choices of one cache folder's store, as records."""

    def __init__(self, folder: Path, name: str = STORE) -> None:
        self.path = folder / name
        self._name = str(self.path)
        self._legacy = folder / "measured-v1.json"
        self._legacy_name = str(self._legacy)
        self._lock = threading.Lock()
        self._seen: Any = ()
        self._last_warning = ""  # what was last said of the legacy file
        self._empty = True
        self._none_at: Any = ()  # the entries of the folder (`looks.entries`) when there was nothing to look at

    @cached_property
    def results(self) -> stored.Results:
        """What reads and writes the store; most programs have none."""
        return stored.Results(self.path)

    def refresh(self, entries: Any = None) -> None:
        """Look at the store again if it changed; no question to the file system where its folder's entries did not."""
        if self.none_at(entries):
            return
        if os.access(self._legacy_name, os.F_OK):  # every selection asks this, and it makes no exception
            self._take_over()
            entries = None
        now = looks.stamp(self._name)
        if now == self._seen:
            self._none_at = entries if now is None and looks.none_of(str(self.path), self._legacy_name) else ()
            return
        with self._lock:
            try:
                self._empty = now is None or not self.results.has_choices()
            except stored.Unreadable as error:
                self._ignore(error)
            # Opening a store may make its files; only what others write from here on is news.
            self._seen = looks.stamp(self._name)
        global epoch
        epoch += 1
        notices.notify(notices.changed)

    def none_at(self, entries: Any) -> bool:
        """Whether there was nothing to look at when the folder had these entries."""
        return entries is not None and entries == self._none_at

    @staticmethod
    def _warn(message: str) -> None:
        events.emit(events.Warned("records-unreadable", message))
        warnings.warn(message, RuntimeWarning, stacklevel=2)

    @property
    def empty(self) -> bool:
        """True when nothing was chosen anywhere, nor in a bundle."""
        return self._empty and not bundle_parts.has_records()

    def _ignore(self, error: stored.Unreadable) -> None:
        self._empty = True
        self._warn(f"the measurement records {self.path} are ignored: {error}")

    def _choices(self, op: str, problem: Any, target: str) -> list[stored.Choice]:
        if self._empty:
            return []
        return self.results.choices(
            "WHERE p.digest = ? AND h.target = ? ORDER BY h.date", (_problem_digest(op, problem), target)
        )

    def _record(self, choice: stored.Choice, *, whole: bool = True) -> Record | None:
        """A choice with the times it was made from; None where its kernel's own is not there any more.

        Not `whole`, with its kernel's time alone: hundreds of others may have been measured, and dispatch waits.
        """
        known = self.results.timed(choice, whole=whole)
        mine = next((result for result in known if result.kernel.digest == choice.digest), None)
        if mine is None:
            return None
        timings = tuple(
            Timing(result.kernel.digest, result.kernel.name, result.kernel.spec, result.seconds or 0.0, result.spread,
                   result.error or 0.0)
            for result in known
        )  # fmt: skip
        return Record(
            choice.op, choice.problem, choice.threads, choice.target, choice.digest, timings, mine.method,
            mine.versions, choice.device, choice.date,
        )  # fmt: skip

    def lookup(self, op: str, problem: Any, target: str, threads: int, *, whole: bool = True) -> Record | None:
        """The record of a problem on this machine's device of the target; with the winner's time alone, not `whole`."""
        threads = threads_of(target, threads)
        try:
            choices = self._choices(op, problem, target)
            here = machine(target).get("fingerprint") if choices else None
            for choice in reversed(choices):
                if here and choice.device.get("fingerprint") == here and choice.threads == threads:
                    return self._record(choice, whole=whole)
        except stored.Unreadable as error:
            self._ignore(error)
        return _bundled_record(op, problem, target, threads)

    def why(self, record: Record) -> str:
        """Why a record names its kernel: the fastest of all that were timed, or one within the noise of it."""
        try:
            count, fastest = self.results.timed_field(_choice_of(record))
        except stored.Unreadable as error:
            self._ignore(error)
            count = 0
        if not count:  # of a bundle, which brings the times of its own kernels
            count, fastest = len(record.timings), min(timing.seconds for timing in record.timings)
        if record.winner.seconds <= fastest:
            return f"fastest of {count} measured on this machine"
        behind = record.winner.seconds / fastest - 1
        return (
            f"of {count} measured on this machine, the earlier choice: "
            f"the fastest beats it by {behind:.1%}, which is within the noise"
        )

    def unused(self, op: str, problem: Any, target: str, threads: int) -> list[str]:
        """Why each record of the problem that `lookup` passes over says nothing here."""
        try:
            known = [self._record(choice, whole=False) for choice in self._choices(op, problem, target)]
        except stored.Unreadable as error:
            self._ignore(error)
            known = []
        known += _bundled_records(op, problem, target)
        if not known:
            return []
        here, count = machine(target), threads_of(target, threads)
        reasons = []
        for record in known:
            if record is None:
                continue
            if not here:
                reasons.append(f"{_not_used(record)}: this machine has no device of {target}")
            elif record.machine.get("fingerprint") != here["fingerprint"]:
                reasons.append(f"{_not_used(record)}: {_differences(record.machine, here)}")
            elif record.threads != count:
                reasons.append(f"{_not_used(record)}: with {counted(record.threads, 'thread')}, not {threads}")
        return reasons

    def all(self) -> tuple[Record, ...]:
        self.refresh()
        if self._empty:
            return ()
        try:
            known = [self._record(choice) for choice in self.results.choices("ORDER BY h.date")]
        except stored.Unreadable as error:
            self._ignore(error)
            return ()
        return tuple(record for record in known if record is not None)

    def put(self, record: Record) -> None:
        """Add a record; one of the same problem, target, threads and machine is replaced."""
        self.merge([record])

    def merge(self, records: Iterable[Record], *, newest: bool = False) -> int:
        """Add records, each in the place of one of the same identity; with `newest` only in that of an older one.

        The answer counts those that were taken.
        """
        taken = []
        there = {identity_key(known): known.date for known in self.all()} if newest else {}
        for record in records:
            key = identity_key(record)
            if newest and there.get(key, float("-inf")) >= record.date:
                continue
            there[key] = record.date
            taken.append(record)
        if taken:
            self._put(taken, newest=newest)
            self.refresh()
        return len(taken)

    def _put(self, records: Sequence[Record], *, newest: bool) -> None:
        """Into the store; a damaged one is set aside first, one of others is left alone."""
        self._store(
            [each for record in records for each in _results_of(record)], map(_choice_of, records), newest=newest
        )

    def choose(self, results: Iterable[stored.Result], choices: Iterable[stored.Choice]) -> None:
        """Keep choices, and those results of their kernels that are not in the store yet."""
        self._store(results, choices)
        self.refresh()

    def take(self, results: Iterable[stored.Result], choices: Iterable[stored.Choice] = ()) -> int:
        """Add another place's results and choices where they are newer; the answer counts the results taken."""
        taken = self._store(results, choices, newest=True)
        self.refresh()
        return taken

    def _store(
        self, results: Iterable[stored.Result], choices: Iterable[stored.Choice], *, newest: bool = False
    ) -> int:
        results, choices = list(results), list(choices)
        try:
            return self.results.put(results, choices, newest=newest)
        except stored.Unreadable as error:
            if error.foreign:
                raise self._foreign(error) from error
            self._set_aside(error)
            return self.results.put(results, choices, newest=newest)

    def demand_writable(self) -> None:
        """Say now what would keep a choice from being stored later; a damaged store would only be set aside."""
        try:
            self.results.demand_writable()
        except stored.Unreadable as error:
            if error.foreign:
                raise self._foreign(error) from error

    def _foreign(self, error: stored.Unreadable) -> StoreError:
        return StoreError(
            f"the measurement records {self.path} cannot be used ({error}), and are not written over",
            rule="records-unreadable",
            value=str(self.path),
            remedy="use the version that wrote them, or set TILEWRIGHT_CACHE_DIR to another folder",
        )

    def forget(self, which: Callable[[Record], bool]) -> int:
        """Remove records; the answer counts them."""
        gone = [record for record in self.all() if which(record)]
        if not gone:
            return 0
        try:
            count = self.results.forget_choices(map(_choice_of, gone))
        except stored.Unreadable as error:
            if error.foreign:
                raise self._foreign(error) from error
            raise StoreError(
                f"the measurement records {self.path} are damaged ({error}): nothing was forgotten",
                rule="records-unreadable",
                value=str(self.path),
                remedy="move the file away; `tilewright records export` may save what can be read of it before",
            ) from error
        self.refresh()
        return count

    def _set_aside(self, trouble: stored.Unreadable) -> None:
        """A damaged store is someone's measurements: it keeps them, under another name."""
        self.results.close()
        from tilewright.build.locks import FileLock

        lock = FileLock(self.path.with_suffix(".lock"))
        if not lock.acquire():
            return  # another process does it now
        try:
            aside = _free_name(self.path, "unreadable")
            for ending in ("", "-wal", "-shm"):
                file = self.path.with_name(self.path.name + ending)
                if file.exists():
                    file.rename(aside.with_name(aside.name + ending))
        finally:
            lock.release()
        self._warn(f"{self.path} could not be read ({trouble}); it is kept as {aside.name}")

    def _take_over(self) -> None:
        """The records of the JSON file that came before the store; the file stays under another name."""
        try:
            data = jsontext.loads(jsontext.read(self._legacy))
            raw = data.get("records") if isinstance(data, dict) else None
            if not isinstance(raw, list):
                raise ValueError("it has no list of records")
            taken, wrong = [], 0
            for entry in raw:
                try:
                    taken.append(read_record(entry))
                except ValueError:
                    wrong += 1
            if taken:
                self._put(taken, newest=True)
            kept = self._legacy.rename(_free_name(self._legacy, "moved"))
        except FileNotFoundError:
            return  # another process took it over
        except (OSError, ValueError, StoreError) as error:
            if self._last_warning != str(error):
                self._last_warning = str(error)
                self._warn(f"the measurement records {self._legacy} are ignored: {error}")
            return
        if wrong:
            self._warn(f"{wrong} of {len(raw)} measurement records cannot be read; they are kept in {kept.name}")


def _bundled_records(op: str, problem: Any, target: str) -> list[Record]:
    """What bundles in force have of a problem, wherever it was measured."""
    if not bundle_parts.has_records():
        return []
    known = []
    for row in bundle_parts.records(op, _problem_digest(op, problem), target):
        try:
            known.append(read_record(row))
        except ValueError as error:
            events.emit(events.Warned("records-unreadable", f"a measurement of a bundle is ignored: {error}"))
    return known


def _bundled_record(op: str, problem: Any, target: str, threads: int) -> Record | None:
    """The record of this machine's device that a bundle has."""
    for record in _bundled_records(op, problem, target):
        if record.machine.get("fingerprint") == machine(target).get("fingerprint", "") and record.threads == threads:
            return record
    return None


def _free_name(path: Path, word: str) -> Path:
    number = 1
    while (free := path.with_name(f"{path.name}.{word}-{number}")).exists():
        number += 1
    return free


def _results_of(record: Record) -> list[stored.Result]:
    threads = threads_of(record.target, record.threads)
    return [
        stored.Result(
            record.op, record.problem, record.machine, threads,
            stored.KernelRow(timing.digest, timing.name, str(timing.spec.get("arch", "")), timing.spec), stored.OK,
            timing.seconds, timing.spread, timing.error, method=record.method, versions=record.versions,
            date=record.date,
        )
        for timing in record.timings
    ]  # fmt: skip


def _choice_of(record: Record) -> stored.Choice:
    threads = threads_of(record.target, record.threads)
    return stored.Choice(record.op, record.problem, record.machine, threads, record.target, record.choice, record.date)


_known: dict[Path, Records] = {}
_known_lock = threading.Lock()


def records() -> Records:
    """The records of the cache folder in force."""
    folder = settings.current().cache_dir
    known = _known.get(folder)
    if known is None:
        with _known_lock:
            known = _known.setdefault(folder, Records(folder))
    return known
