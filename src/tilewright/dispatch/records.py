"""Measured choices: which kernel won a problem on which machine, with everything needed to believe it.

One JSON file in the cache folder, written whole and renamed into place, changed under a lock.  A record that cannot be
read is passed over and kept: it is written back as it was.  A file that cannot be read at all is never written over: it
is set aside under another name, or, where even that is unclear, the new record is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright import events, jsontext, settings
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


_SHAPE: dict[str, type | tuple[type, ...]] = {
    "op": str, "problem": Mapping, "threads": int, "target": str, "choice": str, "timings": list,
    "method": Mapping, "versions": Mapping, "machine": Mapping, "date": (int, float),
}  # fmt: skip
_TIMING_SHAPE: dict[str, type | tuple[type, ...]] = {
    "digest": str, "name": str, "spec": Mapping, "seconds": (int, float), "spread": (int, float), "error": (int, float),
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
    return {name: data[name] for name in shape}


def read_record(data: Any) -> Record:
    """A record back from `to_dict`; one that cannot be believed is a ValueError."""
    values = _shaped("the record", {"machine": {"fingerprint": ""}, "date": 0.0, **data}
                     if isinstance(data, Mapping) else data, _SHAPE)  # fmt: skip
    timings = tuple(Timing(**_shaped("a timing", one, _TIMING_SHAPE)) for one in values["timings"])
    record = Record(**{**values, "timings": timings})
    if all(one.digest != record.choice for one in timings):
        raise ValueError("its choice is none of the timings")
    return record


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells one state of a file from another; None when it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116  this is on the way of every selection
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _canonical(data: Any) -> str:
    """The same text for a problem and for what was read back of it: of any op, nested, with tuples and None."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)


@lru_cache(maxsize=4096)  # a selection asks more than once
def _problem_text(problem: Any) -> str:
    return _canonical(plain(problem))


def _threads(target: str, threads: int) -> int:
    """Threads of the host matter to its own kernels only."""
    return threads if _on_host(target) else 0


_ProblemKey = tuple[str, str, str]


def _problem_of_data(record: Record) -> _ProblemKey:
    return (record.op, record.target, _canonical(record.problem))


def _problem_key(op: str, target: str, problem: Any) -> _ProblemKey:
    return (op, target, _problem_text(problem))


def identity_key(record: Record) -> tuple[Any, ...]:
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


@dataclass(frozen=True, slots=True)
class _Item:
    """One element of the file: as it stands there, and what it says where that can be read."""

    raw: Any
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class _Contents:
    """What the file holds; `trouble` says why nothing of it can be read."""

    items: tuple[_Item, ...] = ()
    trouble: OSError | ValueError | None = None
    why: str = ""  # for people: what is passed over


def _item(raw: Any) -> tuple[_Item, str]:
    try:
        return _Item(raw, read_record(raw)), ""
    except ValueError as error:
        return _Item(raw), str(error)


class Records:
    """The records of one cache folder, kept in step with the file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"measured-v{SCHEMA}.json"
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._all: list[Record] = []
        self._by_problem: dict[_ProblemKey, list[Record]] = {}
        self.unreadable = 0  # records of the file that this version cannot read; they are kept

    def refresh(self) -> None:
        """Read the file again if it changed; one stat otherwise."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        with self._lock:
            contents = self._read() if stamp is not None else _Contents()
            if contents.why:
                self._warn(contents.why)
            self._take(contents.items)
            self._seen = stamp

    def _take(self, items: Sequence[_Item]) -> None:
        records = [one.record for one in items if one.record is not None]
        by_problem: dict[_ProblemKey, list[Record]] = {}
        for one in records:
            by_problem.setdefault(_problem_of_data(one), []).append(one)
        self._all, self._by_problem = records, by_problem
        self.unreadable = len(items) - len(records)
        global epoch
        epoch += 1

    def _read(self) -> _Contents:
        try:
            data = jsontext.loads(jsontext.read(self.path))
            if not isinstance(data, dict) or data.get("schema") != SCHEMA:
                found = data.get("schema") if isinstance(data, dict) else type(data).__name__
                raise ValueError(f"it has schema {found!r}, this version reads {SCHEMA}")
            if not isinstance(data.get("records"), list):
                raise ValueError("it has no list of records")
        except FileNotFoundError:
            return _Contents()
        except (OSError, ValueError) as error:
            return _Contents((), error, f"the measurement records {self.path} are ignored: {error}")
        read = [_item(one) for one in data["records"]]
        wrong = [why for _, why in read if why]
        told = (
            f"{len(wrong)} of {len(read)} measurement records in {self.path} are ignored, and kept: " if wrong else ""
        )
        return _Contents(tuple(item for item, _ in read), why=told + "".join(wrong[:1]))

    @staticmethod
    def _warn(message: str) -> None:
        events.emit(events.Warned("records-unreadable", message))
        warnings.warn(message, RuntimeWarning, stacklevel=2)

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
        self.merge([record])

    def merge(self, given: Iterable[Record], *, newest: bool = False) -> int:
        """Add records, each in the place of one of the same identity; with `newest` only in that of an older one.

        The answer counts those that were taken.
        """
        taken = 0

        def edit(items: Sequence[_Item]) -> list[_Item]:
            nonlocal taken
            left = list(items)
            for record in given:
                key = identity_key(record)
                same = [one.record is not None and identity_key(one.record) == key for one in left]
                there = [one.record.date for one, is_it in zip(left, same, strict=True) if is_it and one.record]
                if newest and any(date >= record.date for date in there):
                    continue
                left = [one for one, is_it in zip(left, same, strict=True) if not is_it]
                left.append(_Item(record.to_dict(), record))
                taken += 1
            return left

        self._change(edit)
        return taken

    def forget(self, which: Callable[[Record], bool], *, unreadable: bool = False) -> int:
        """Remove records, and those that cannot be read where asked to; the answer counts them."""
        gone = 0

        def edit(items: Sequence[_Item]) -> list[_Item]:
            nonlocal gone
            kept = [one for one in items if not (unreadable if one.record is None else which(one.record))]
            gone = len(items) - len(kept)
            return kept

        self._change(edit)
        return gone

    def _change(self, edit: Callable[[Sequence[_Item]], list[_Item]]) -> None:
        """Read, edit and write the file while nobody else does."""
        lock = FileLock(self.path.with_suffix(".lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            give_up = time.monotonic() + _LOCK_PATIENCE
            while not lock.acquire():
                if time.monotonic() >= give_up:
                    raise StoreError(
                        f"the measurement records {self.path} are held by another process",
                        rule="records-locked",
                        value=str(lock.path),
                        remedy="wait for it, or end it, and try again; nothing was written",
                    )
                time.sleep(0.01)
            try:
                with self._lock:
                    contents = self._read()
                    self._set_aside(contents.trouble)
                    items = edit(contents.items)
                    if contents.trouble is not None or items != list(contents.items):
                        self._write(items)
            finally:
                lock.release()
        except OSError as error:
            raise StoreError(
                f"the measurement records {self.path} cannot be written: {error.strerror or error}",
                rule="records-unwritable",
                value=str(self.path),
                remedy="mend the place, or set TILEWRIGHT_CACHE_DIR to another one",
            ) from error

    def _set_aside(self, trouble: OSError | ValueError | None) -> None:
        """A file that cannot be read is someone's measurements: it keeps them, under another name."""
        if trouble is None:
            return
        if isinstance(trouble, OSError):
            raise StoreError(
                f"the measurement records {self.path} cannot be read ({trouble.strerror or trouble}), "
                "and are not written over",
                rule="records-unreadable",
                value=str(self.path),
                remedy="mend the file or its permissions, or set TILEWRIGHT_CACHE_DIR to another place",
            )
        number = 1
        while os.path.lexists(aside := self.path.with_name(f"{self.path.name}.unreadable-{number}")):
            number += 1
        self.path.rename(aside)
        self._warn(f"{self.path} could not be read ({trouble}); it is kept as {aside.name}")

    def _write(self, items: Sequence[_Item]) -> None:
        text = json.dumps({"schema": SCHEMA, "records": [one.raw for one in items]}, indent=1)
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
        self._take(items)
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
