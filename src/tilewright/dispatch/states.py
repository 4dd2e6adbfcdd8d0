"""The states of settings, threads and files that choices are made in.

Settings, threads and built kernels are looked at in every selection; files now and then (`looks`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tilewright import settings
from tilewright.build import bundled
from tilewright.dispatch import built, learned, looks
from tilewright.dispatch import records as measured
from tilewright.dispatch.records import records
from tilewright.lru import LruCache
from tilewright.native import library

MOST_STATES = 16  # kept of a registry

_clock = time.monotonic


class State:
    """One state of settings, threads and files.  Choices made in one are not those of another."""

    __slots__ = ("asking", "built", "bundles", "lock", "measured", "settings", "strict", "threads")

    def __init__(self, now: settings.Settings, threads: int, strict: bool, lock: Any, built_generation: int) -> None:
        self.settings, self.threads, self.strict, self.lock, self.built = now, threads, strict, lock, built_generation
        self.bundles = bundled.generation
        self.measured = now.measure and not records().empty  # a new record makes new states, and so does a bundle
        self.asking: dict[int, Any] = {}  # `judged` keeps here what it asks of models, by the id of a judge


class States:
    """Of one registry; `forget` is called when a file has changed, so that choices are stale."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._lock = threading.RLock()
        self._known: LruCache[Any, State] = LruCache(lambda: MOST_STATES)
        self._seen: tuple[Any, int] = (None, -1)  # the records in force when choices were made, and their epoch
        self._models: Any = None  # the models then at hand
        self._libraries = library.recovered  # selection libraries that came late, then
        self._none_at: Any = ()  # the entries of the cache folder when there was no folder of models
        # The settings, the cache folder and its entries, when there was no file to look at.
        self._nothing: tuple[settings.Settings, str, Any] | None = None
        # What the last look was made under, the stamp of the lock file then, and when the next one is due.
        self._look: tuple[settings.Settings | None, int, int, Any, float] = (None, -1, -1, None, 0.0)
        self._last: State | None = None

    def state(self, now: settings.Settings, threads: int, strict: bool) -> State:
        """The one in force."""
        seen, epoch, generation, lock, until = self._look
        if seen is not now or epoch != measured.epoch or generation != looks.generation:
            lock = self._looked(now)
        elif _clock() >= until:
            lock = None if self._still_nothing(now) else self._looked(now)
        ready = 0 if now.missing == "compile" else built.generation()
        last = self._last
        if (
            last is not None
            and last.settings is now
            and last.threads == threads
            and last.strict is strict
            and last.built == ready
            and last.bundles == bundled.generation
            and last.lock == lock
        ):
            return last
        key = (now, threads, strict, lock, ready, bundled.generation)
        with self._lock:
            state = self._known.get(key) or self._known.put(key, State(now, threads, strict, lock, ready))
            self._last = state
        return state

    def _still_nothing(self, now: settings.Settings) -> bool:
        """Whether there was nothing to look at, and still is not: one question to the file system."""
        nothing = self._nothing
        if library.any_missing() or library.recovered != self._libraries:
            return False
        if nothing is None or nothing[0] is not now or looks.entries(nothing[1]) != nothing[2]:
            return False
        self._look = (*self._look[:4], _clock() + looks.SECONDS)
        return True

    def _looked(self, now: settings.Settings) -> Any:
        """Look at the files; the stamp of the lock file."""
        generation, until = looks.generation, _clock() + looks.SECONDS
        folder = str(now.cache_dir)
        entries = looks.entries(folder) if now.measure or now.models else None
        self.follow_records(now, entries)
        self._follow_models(now, entries)
        self._follow_libraries()
        lock = _lock_stamp(now.lock)
        unmeasured = not now.measure or records().none_at(entries)
        none = unmeasured and (not now.models or self._none_at == (entries, folder))
        self._nothing = (now, folder, entries) if entries is not None and none and not now.lock else None
        self._look = (now, measured.epoch, generation, lock, until)
        return lock

    def follow_records(self, now: settings.Settings, entries: Any = None) -> None:
        """A new measurement makes remembered choices stale; `entries` are those of the cache folder, if known."""
        if not now.measure:
            return
        table = records()
        table.refresh(entries)
        seen = (table, measured.epoch)
        if seen != self._seen:
            with self._lock:
                if self._seen[0] is not None:
                    self._drop()
                self._seen = seen

    def _follow_models(self, now: settings.Settings, entries: Any) -> None:
        """So does a new model."""
        if not now.models:
            return
        folder = str(now.cache_dir)
        at = None if entries is None else (entries, folder)
        if at is not None and at == self._none_at:
            seen = None
        else:
            seen = learned.stamp(now.cache_dir)
            none = seen is None and looks.none_of(os.path.join(folder, learned.FOLDER))  # noqa: PTH118
            self._none_at = at if none else ()
        if seen != self._models:
            with self._lock:
                self._drop()
                self._models = seen

    def _follow_libraries(self) -> None:
        """So does a selection library that could not be had before: another process, or other settings, built it."""
        if library.any_missing():
            library.retry()
        if library.recovered != self._libraries:
            with self._lock:
                self._drop()
                self._libraries = library.recovered

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
    """What distinguishes one state of the lock file from another; without one, what reads such files is not loaded."""
    if not path:
        return None
    from tilewright.dispatch import locks

    return locks.stamp(path)
