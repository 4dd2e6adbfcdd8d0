"""Which kernels are built, at a price that a call can pay, and who waits for which.

Knowing it is one listing of the store's marks (`build.marks`), made again at most once a second and only if the folder
changed: what other processes build is seen that late.  What this process builds is known at once.  A mark is a hint;
before a kernel is taken its entry is looked at, once a process and kernel.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from tilewright import settings
from tilewright.build import Artifact, Builder, Store, bundled, marks
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec

LOOK_SECONDS = 1.0  # between two questions to the file system


class Waiting(Protocol):
    """What holds plans with lesser kernels, and drops them when a better one is there."""

    def drop_plans_beside(self, digest: str) -> None: ...


class _Listing:
    """The marks of one store, as they were seen last."""

    __slots__ = ("digests", "looked_at", "stamp", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.digests: set[str] = set()
        self.stamp = -1
        self.looked_at = float("-inf")


_lock = threading.RLock()
_listings: dict[Path, _Listing] = {}
_sound: dict[tuple[str, tuple[Any, ...]], bool] = {}  # by digest and what else decides a build: whether it is there
_adopted: set[str] = set()
_waiting: dict[str, weakref.WeakSet[Any]] = {}  # by the digest of a kernel that is not built: who has plans without it
_generation = 0
# What was last seen in the store, by the same key, and when.
_seen: tuple[tuple[str, tuple[Any, ...]], Artifact, float] | None = None


def generation() -> int:
    """What is in the keys of choices that depend on which kernels are built; another number where that changed."""
    place = settings.current().cache_dir
    known = _listings.get(place)
    if known is None or time.monotonic() - known.looked_at > LOOK_SECONDS:
        _look(place)
    return _generation


def _look(place: Path) -> _Listing:
    global _generation
    with _lock:
        known = _listings.get(place)
        if known is None:
            known = _listings[place] = _Listing(Store(place))
        known.looked_at = time.monotonic()
        stamp = marks.stamp(known.store)
        if stamp == known.stamp:
            return known
        before, known.digests, known.stamp = known.digests, marks.digests(known.store), stamp
        new = known.digests - before
        if new:
            _generation += 1
            for key in [key for key, sound in _sound.items() if not sound and key[0] in new]:
                del _sound[key]
    _notify(new & _waiting.keys())
    return known


def is_built(spec: KernelSpec) -> bool:
    """Whether a call with this kernel compiles nothing."""
    digest = spec.digest
    if digest in _adopted or bundled.holds(digest):
        return True
    key = digest, settings.builds()
    known = _sound.get(key)
    if known is not None:
        return known
    generation()
    if digest not in _listings[settings.current().cache_dir].digests:
        return False
    try:
        artifact = Builder().find(spec)  # of other flags or headers it is another kernel
    except TilewrightError:  # damaged, or of a toolchain that is gone: whoever builds it hears of it
        artifact = None
    if artifact is not None:
        global _seen
        _seen = key, artifact, time.monotonic()
    return _sound.setdefault(key, artifact is not None)


def just_seen(spec: KernelSpec) -> Artifact | None:
    """The stored kernel that `is_built` looked at and verified a moment ago, if it was this one: a first call would do
    both again."""
    global _seen
    last, _seen = _seen, None
    if last is None or last[0] != (spec.digest, settings.builds()) or time.monotonic() - last[2] > LOOK_SECONDS:
        return None
    return last[1]


def note(specs: Iterable[KernelSpec]) -> None:
    """This process has built these, or found them built."""
    global _generation
    with_these = settings.builds()
    new = [spec.digest for spec in specs if _sound.get((spec.digest, with_these)) is not True]
    if not new:
        return
    with _lock:
        _sound.update({(digest, with_these): True for digest in new})
        _generation += 1
    _notify(_waiting.keys() & set(new))


def adopt(digests: Iterable[str]) -> None:
    """These run from libraries that a person built."""
    global _generation
    with _lock:
        _adopted.update(digests)
        _generation += 1
    _notify(_waiting.keys() & _adopted)


def wait_for(spec: KernelSpec, who: Waiting) -> None:
    """Have `who` drop its plans beside a kernel as soon as it is known to be built."""
    with _lock:
        _waiting.setdefault(spec.digest, weakref.WeakSet()).add(who)


def _notify(digests: Iterable[str]) -> None:
    for digest in list(digests):
        with _lock:
            who = list(_waiting.pop(digest, ()))
        for registry in who:
            registry.drop_plans_beside(digest)


def _after_fork() -> None:
    """Another thread of the parent may have held the lock, and is not here to release it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def forget() -> None:
    """Drop what is known, for tests that change a store behind our back."""
    global _generation
    with _lock:
        _listings.clear()
        _sound.clear()
        _generation += 1
