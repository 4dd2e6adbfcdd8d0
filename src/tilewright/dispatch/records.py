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
from tilewright.arch import host_facts
from tilewright.build.locks import FileLock
from tilewright.errors import StoreError
from tilewright.ops.base import plain

SCHEMA = 1

# Raised whenever records in memory change: what was chosen before may have a better answer now.
epoch = 0
_LOCK_PATIENCE = 30.0


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """What makes two machines' measurements comparable."""
    facts = host_facts()
    data = {
        "model": facts.model,
        "machine": facts.machine,
        "cores": facts.cores,
        "l2_bytes": facts.l2_bytes,
        "l3_bytes": facts.l3_bytes,
        "flags": hashlib.sha256(" ".join(sorted(facts.flags)).encode()).hexdigest()[:16],
    }
    text = json.dumps(data, sort_keys=True)
    return {**data, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16]}


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
    machine: Mapping[str, Any] = field(default_factory=machine)
    date: float = field(default_factory=time.time)

    @property
    def winner(self) -> Timing:
        return next(one for one in self.timings if one.digest == self.choice)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        return {**data, "problem": dict(self.problem), "method": dict(self.method), "versions": dict(self.versions)}


def _record(data: Mapping[str, Any]) -> Record:
    known = {one.name for one in fields(Record)}
    timings = tuple(Timing(**one) for one in data["timings"])
    record = Record(**{**{key: value for key, value in data.items() if key in known}, "timings": timings})
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


def _key_of_data(record: Record) -> tuple[Any, ...]:
    values = tuple(value for _, value in sorted(record.problem.items()))
    return (record.op, record.target, record.threads, values)


class Records:
    """The records of one cache folder, kept in step with the file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"measured-v{SCHEMA}.json"
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._all: list[Record] = []
        self._here: dict[tuple[Any, ...], Record] = {}

    def refresh(self) -> None:
        """Read the file again if it changed; one stat otherwise."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        with self._lock:
            self._take(self._read() if stamp is not None else [])
            self._seen = stamp

    def _take(self, records: list[Record]) -> None:
        here = machine()["fingerprint"]
        self._all = records
        self._here = {_key_of_data(one): one for one in records if one.machine.get("fingerprint") == here}
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
        """True when nothing was measured on this machine."""
        return not self._here

    def lookup(self, op: str, problem: Any, target: str, threads: int) -> Record | None:
        """The record of a problem on this machine."""
        _, getter = _getter(problem.__class__)
        return self._here.get((op, target, threads, getter(problem)))

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
            key = (record.machine.get("fingerprint"), *_key_of_data(record))
            kept = [one for one in self._read() if (one.machine.get("fingerprint"), *_key_of_data(one)) != key]
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
