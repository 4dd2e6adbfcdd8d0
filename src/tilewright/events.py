"""Typed records of what happened: build, load, select, fallback, measure, launch.

Console progress, JSONL files and reports all read these records; nobody parses log text.  With no
subscriber an event costs one truth test.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


def active() -> bool:
    """True when someone listens; hot paths ask before building a record."""
    return bool(_subscribers)


def emit(event: Event) -> None:
    for subscriber in _subscribers:
        subscriber(event)


def subscribe(subscriber: Callable[[Event], None]) -> Callable[[], None]:
    """Call `subscriber` with every event from now on; the answer unsubscribes it."""
    global _subscribers
    with _lock:
        _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        with _lock:
            _subscribers = tuple(one for one in _subscribers if one is not subscriber)

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


def to_jsonl(path: Path) -> Callable[[], None]:
    """Append every event to a JSONL file, one whole line a write; the answer stops it."""

    def write(event: Event) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.to_dict(), sort_keys=True) + "\n")

    return subscribe(write)
