"""Typed records of what happened: build, load, select, fallback, measure, launch.

Console progress, JSONL files and reports all read these records; nobody parses log text.  Every event
also goes to the file the setting `events` names where it happens (TILEWRIGHT_EVENTS, in any program).
With no subscriber and no such file an event costs two truth tests.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.dataclass import dataclass
from tilewright.errors import MachineError


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all records; `at` is seconds since the epoch."""

    at: float = field(default_factory=time.time, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        return {"event": type(self).__name__, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True)
class BuildPlanned(Event):
    """A build is about to start: how many kernels, how many are in the store already."""

    total: int
    cached: int
    jobs: int
    jobs_reason: str


@dataclass(frozen=True, slots=True)
class KernelBuilt(Event):
    """One kernel came out of the compiler (or out of the store, when `cached`)."""

    name: str
    digest: str
    seconds: float
    cached: bool


@dataclass(frozen=True, slots=True)
class BuildFailed(Event):
    name: str
    message: str
    log_path: str


@dataclass(frozen=True, slots=True)
class KernelLoaded(Event):
    name: str
    digest: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Selected(Event):
    """A problem got a kernel; `tier` says how far the choice had to fall."""

    problem: str
    kernel: str
    tier: str
    reason: str


@dataclass(frozen=True, slots=True)
class Substituted(Event):
    """The kernel of a problem is not built, and another that is takes its place (the setting `missing`)."""

    problem: str
    kernel: str  # that is run
    wanted: str  # that would have been chosen
    loss: float | None  # estimated: 0.02 is 2 % more time; None where the two cannot be compared
    building: bool  # the wanted one is built meanwhile


@dataclass(frozen=True, slots=True)
class Measured(Event):
    problem: str
    kernel: str
    seconds: float
    error: float


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something is wrong that does not stop the work; `rule` names it."""

    rule: str
    message: str


_subscribers: tuple[Callable[[Event], None], ...] = ()
_lock = threading.Lock()


def active(now: settings.Settings | None = None) -> bool:
    """True when someone listens; hot paths ask before building a record, with the settings in force if at hand."""
    return bool(_subscribers) or bool((settings.current() if now is None else now).events)


def emit(event: Event) -> None:
    for subscriber in _subscribers:
        subscriber(event)
    path = settings.current().events
    if path:
        _append(Path(path), event)


def subscribe(subscriber: Callable[[Event], None]) -> Callable[[], None]:
    """Call `subscriber` with every event from now on; the answer unsubscribes it."""
    global _subscribers
    with _lock:
        _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        with _lock:
            _subscribers = tuple(known for known in _subscribers if known is not subscriber)

    return unsubscribe


@contextmanager
def recorded() -> Iterator[list[Event]]:
    """Collect the events of a `with` body in a list."""
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    try:
        yield events
    finally:
        unsubscribe()


def _append(path: Path, event: Event) -> None:
    """One write a line: several processes may share the file."""
    line = json.dumps(event.to_dict(), sort_keys=True) + "\n"
    try:
        with Path(os.path.expanduser(path)).open("ab", buffering=0) as file:  # noqa: PTH111  never raises
            file.write(line.encode())
    except OSError as error:
        raise MachineError(
            f"the events file {path} cannot be written: {error.strerror or error}",
            rule="events-file",
            value=str(path),
            remedy="set TILEWRIGHT_EVENTS (the option `events`) to a file that can be written, or to nothing",
        ) from error


def to_jsonl(path: Path) -> Callable[[], None]:
    """Append every event to a JSONL file, one whole line a write; the answer stops it."""
    return subscribe(lambda event: _append(path, event))
