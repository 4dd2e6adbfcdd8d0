"""The states of settings, threads and files that choices are made in.

Settings, threads and built kernels are looked at in every selection; files now and then (`looks`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tilewright import settings
from tilewright.dispatch import built, learned, looks
from tilewright.dispatch import records as measured
from tilewright.dispatch.records import records
from tilewright.lru import LruCache

MOST_STATES = 16  # kept of a registry

_clock = time.monotonic


class State:
    """One state of settings, threads and files.  Choices made in one are not those of another."""

    __slots__ = ("asking", "built", "lock", "settings", "strict", "threads")

    def __init__(self, now: settings.Settings, threads: int, strict: bool, lock: Any, built_generation: int) -> None:
        self.settings, self.threads, self.strict, self.lock, self.built = now, threads, strict, lock, built_generation
        self.asking: dict[int, Any] = {}  # `judged` keeps here what it asks of models, by the id of a judge


class States:
    """Of one registry; `forget` is called when a file has changed, so that choices are stale."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._lock = threading.RLock()
        self._known: LruCache[Any, State] = LruCache(lambda: MOST_STATES)
        self._seen: tuple[Any, int] = (None, -1)  # the records in force when choices were made, and their epoch
        self._models: Any = None  # the models then at hand
        # What the last look was made under, the stamp of the lock file then, and when the next one is due.
        self._look: tuple[settings.Settings | None, int, int, Any, float] = (None, -1, -1, None, 0.0)
        self._last: State | None = None

    def state(self, now: settings.Settings, threads: int, strict: bool) -> State:
        """The one in force."""
        seen, epoch, generation, lock, until = self._look
        if seen is not now or epoch != measured.epoch or generation != looks.generation or _clock() >= until:
            lock = self._looked(now)
        ready = 0 if now.missing == "compile" else built.generation()
        last = self._last
        if (
            last is not None
            and last.settings is now
            and last.threads == threads
            and last.strict is strict
            and last.built == ready
            and last.lock == lock
        ):
            return last
        key = (now, threads, strict, lock, ready)
        with self._lock:
            state = self._known.get(key) or self._known.put(key, State(now, threads, strict, lock, ready))
            self._last = state
        return state

    def _looked(self, now: settings.Settings) -> Any:
        """Look at the files; the stamp of the lock file."""
        generation, until = looks.generation, _clock() + looks.SECONDS
        self.follow_records(now)
        self._follow_models(now)
        lock = _lock_stamp(now.lock)
        self._look = (now, measured.epoch, generation, lock, until)
        return lock

    def follow_records(self, now: settings.Settings) -> None:
        """A new measurement makes remembered choices stale."""
        if not now.measure:
            return
        table = records()
        table.refresh()
        seen = (table, measured.epoch)
        if seen != self._seen:
            with self._lock:
                if self._seen[0] is not None:
                    self._drop()
                self._seen = seen

    def _follow_models(self, now: settings.Settings) -> None:
        """So does a new model."""
        if not now.models:
            return
        seen = learned.stamp(now.cache_dir)
        if seen != self._models:
            with self._lock:
                self._drop()
                self._models = seen

    def forget(self) -> None:
        """What choices depend on beside settings and files has changed."""
        with self._lock:
            self._known = LruCache(lambda: MOST_STATES)
            self._last = None

    def _drop(self) -> None:
        self._known = LruCache(lambda: MOST_STATES)
        self._last = None
        self._forget()


def _lock_stamp(path: str) -> Any:
    """What tells one state of the lock file from another; without one, what reads such files is not loaded."""
    if not path:
        return None
    from tilewright.dispatch import locks

    return locks.stamp(path)
