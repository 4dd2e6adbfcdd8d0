"""Measured choices: which kernel won a problem on which machine, with everything needed to believe it.

One JSON file in the cache folder, written whole and renamed into place, merged under a lock.  A file
that cannot be read, or that another version wrote, is reported once and ignored: a lost measurement
costs time, never a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from tilewright import events, settings
from tilewright.arch import all_archs
from tilewright.build.locks import FileLock
from tilewright.errors import StoreError, TilewrightError
from tilewright.ops.base import plain
from tilewright.runtime.devices import HOST, device, device_of

SCHEMA = 1

# Raised whenever records in memory change: what was chosen before may have a better answer now.
epoch = 0
_LOCK_PATIENCE = 30.0


def machine(target: str = "") -> dict[str, Any]:
    """What makes two measurements of a target comparable: the device it runs on, here; the host where none is named.

    Without a device of the target there is no fingerprint, and nothing measured anywhere counts.
    """
    identity = _identity(target)
    if identity is None:
        return {}
    text = json.dumps(identity, sort_keys=True)
    return {**identity, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16]}


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
    spread: float  # interquartile range over the median
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
        return next(one for one in self.timings if one.digest == self.choice)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        return {**data, "problem": dict(self.problem), "method": dict(self.method), "versions": dict(self.versions)}


def _record(data: Mapping[str, Any]) -> Record:
    known = {one.name for one in fields(Record)}
    timings = tuple(Timing(**one) for one in data["timings"])
    given = {key: value for key, value in data.items() if key in known}
    record = Record(**{"machine": {"fingerprint": ""}, **given, "timings": timings})
    if all(one.digest != record.choice for one in timings):
        raise ValueError("the choice is none of the timings")
    return record


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells one state of a file from another; None when it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116  this is on the way of every selection
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=32)
def _getter(kind: type[Any]) -> tuple[tuple[str, ...], Any]:
    names = tuple(sorted(one.name for one in fields(kind)))
    return names, attrgetter(*names)


def _threads(target: str, threads: int) -> int:
    """Threads of the host matter to its own kernels only."""
    return threads if _on_host(target) else 0


def _problem_of_data(record: Record) -> tuple[Any, ...]:
    return (record.op, record.target, tuple(value for _, value in sorted(record.problem.items())))


def _problem_key(op: str, target: str, problem: Any) -> tuple[Any, ...]:
    _, getter = _getter(problem.__class__)
    return (op, target, getter(problem))


def _identity_key(record: Record) -> tuple[Any, ...]:
    """Two records with the same key measure the same thing: the later one counts."""
    threads = _threads(record.target, record.threads)
    return (record.machine.get("fingerprint"), threads, *_problem_of_data(record))


def _told(record: Record) -> str:
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
    """The records of one cache folder, kept in step with the file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"measured-v{SCHEMA}.json"
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._all: list[Record] = []
        self._by_problem: dict[tuple[Any, ...], list[Record]] = {}

    def refresh(self) -> None:
        """Read the file again if it changed; one stat otherwise."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        with self._lock:
            self._take(self._read() if stamp is not None else [])
            self._seen = stamp

    def _take(self, records: list[Record]) -> None:
        by_problem: dict[tuple[Any, ...], list[Record]] = {}
        for one in records:
            by_problem.setdefault(_problem_of_data(one), []).append(one)
        self._all, self._by_problem = records, by_problem
        global epoch
        epoch += 1

    def _read(self) -> list[Record]:
        try:
            data = json.loads(self.path.read_bytes())
            if data.get("schema") != SCHEMA:
                raise ValueError(f"it has schema {data.get('schema')!r}, this version reads {SCHEMA}")
            return [_record(one) for one in data["records"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"the measurement records {self.path} are ignored: {error}"
            events.emit(events.Warned("records-unreadable", message))
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return []

    @property
    def empty(self) -> bool:
        """True when nothing was measured anywhere."""
        return not self._by_problem

    def lookup(self, op: str, problem: Any, target: str, threads: int) -> Record | None:
        """The record of a problem on this machine's device of the target."""
        found = self._by_problem.get(_problem_key(op, target, problem))
        if not found:
            return None
        here, threads = machine(target).get("fingerprint"), _threads(target, threads)
        for one in reversed(found):
            if here and one.machine.get("fingerprint") == here and _threads(target, one.threads) == threads:
                return one
        return None

    def unused(self, op: str, problem: Any, target: str, threads: int) -> list[str]:
        """Why each record of the problem that `lookup` passes over says nothing here."""
        found = self._by_problem.get(_problem_key(op, target, problem), [])
        here, count = machine(target), _threads(target, threads)
        reasons = []
        for one in found:
            if not here:
                reasons.append(f"{_told(one)}: this machine has no device of {target}")
            elif one.machine.get("fingerprint") != here["fingerprint"]:
                reasons.append(f"{_told(one)}: {_differences(one.machine, here)}")
            elif _threads(target, one.threads) != count:
                reasons.append(f"{_told(one)}: with {one.threads} thread(s), not {threads}")
        return reasons

    def all(self) -> tuple[Record, ...]:
        self.refresh()
        return tuple(self._all)

    def put(self, record: Record) -> None:
        """Add a record; one of the same problem, target, threads and machine is replaced."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            give_up = time.monotonic() + _LOCK_PATIENCE
            while not lock.acquire() and time.monotonic() < give_up:
                time.sleep(0.01)
            try:
                self._merge(record)
            finally:
                lock.release()
        except OSError as error:
            raise StoreError(
                f"the measurement records {self.path} cannot be written: {error.strerror or error}",
                rule="records-unwritable",
                value=str(self.path),
                remedy="mend the place, or set TILEWRIGHT_CACHE_DIR to another one",
            ) from error

    def _merge(self, record: Record) -> None:
        with self._lock:
            key = _identity_key(record)
            kept = [one for one in self._read() if _identity_key(one) != key]
            records = [*kept, record]
            text = json.dumps({"schema": SCHEMA, "records": [one.to_dict() for one in records]}, indent=1)
            part = self.path.with_name(f"{self.path.name}.{os.getpid()}-{threading.get_ident()}.part")
            try:
                with part.open("w", encoding="utf-8") as file:
                    file.write(text + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                written = _stamp(part)
                part.replace(self.path)
            finally:
                part.unlink(missing_ok=True)
            self._take(records)
            self._seen = written


_known: dict[Path, Records] = {}
_known_lock = threading.Lock()


def records() -> Records:
    """The records of the cache folder in force."""
    folder = settings.current().cache_dir
    found = _known.get(folder)
    if found is None:
        with _known_lock:
            found = _known.setdefault(folder, Records(folder))
    return found
