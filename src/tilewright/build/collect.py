"""Keeping the store small and clean: least recently used entries go first, leavings of the dead too."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tilewright.build.key import STORE_SCHEMA
from tilewright.build.locks import FileLock
from tilewright.build.store import MANIFEST, OWNER_LOCK, Store, remove_tree, store_error

# An entry used this recently may be about to be loaded by another process.
IN_USE_SECONDS = 300.0
# Without working locks nobody can tell whether an owner lives; a day-old folder has none.
ABANDONED_SECONDS = 86400.0
LOG_SECONDS = 7 * 86400.0
# After a build the whole store is only measured when enough was added, or after this long.
SCAN_SECONDS = 3600.0
SCAN_FRACTION = 64


@dataclass(frozen=True, slots=True)
class EntryUse:
    key: str
    bytes: int
    used: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed and what it left."""

    entries: int = 0
    bytes: int = 0
    leavings: int = 0  # work folders, locks and logs
    left_entries: int = 0
    left_bytes: int = 0


def usage(store: Store) -> list[EntryUse]:
    """Size and last use of every entry, the least recently used first."""
    found: list[EntryUse] = []
    for key in store.all_keys():
        size, used = 0, 0.0
        try:
            with os.scandir(store.folder(key)) as files:
                for one in files:
                    status = one.stat()
                    size += status.st_size
                    if one.name == MANIFEST:
                        used = status.st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue  # another process removed it just now
        found.append(EntryUse(key, size, used))
    return sorted(found, key=lambda one: (one.used, one.key))


def trim(
    store: Store, max_bytes: int, *, keep: Collection[str] = (), in_use_seconds: float = IN_USE_SECONDS
) -> Collected:
    """Remove least recently used entries until the store fits; never one in `keep` or in use just now."""
    entries = usage(store)
    total = sum(one.bytes for one in entries)
    removed, freed, recent = 0, 0, time.time() - in_use_seconds
    for one in entries:
        if total - freed <= max_bytes:
            break
        if one.key in keep or (one.used > recent and in_use_seconds > 0):
            continue
        store.discard(one.key)
        removed += 1
        freed += one.bytes
    return Collected(removed, freed, 0, len(entries) - removed, total - freed)


def _sweep_work(folder: Path) -> bool:
    """Remove a work folder whose owner is dead; the kernel freed the owner's lock when it died."""
    if folder.name.startswith("trash-") or not folder.is_dir():
        return _remove(folder)
    owner = FileLock(folder / OWNER_LOCK)
    try:
        if not owner.acquire():
            return False
    except (FileNotFoundError, NotADirectoryError):
        return False  # its owner just finished
    try:
        if not owner.genuine and time.time() - folder.stat().st_mtime < ABANDONED_SECONDS:
            return False
        return _remove(folder)
    finally:
        owner.release()


def _remove(path: Path) -> bool:
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
    return True


def _sweep_lock(path: Path) -> bool:
    lock = FileLock(path)
    if not lock.acquire():
        return False
    lock.release()  # which removes the file
    return True


def sweep(store: Store) -> int:
    """Remove what dead processes left behind and old logs; the answer counts them."""
    store.check_format()
    count = 0
    try:
        if store.temporary.is_dir():
            count += sum(_sweep_work(one) for one in list(store.temporary.iterdir()))
        if store.locks.is_dir():
            count += sum(_sweep_lock(one) for one in list(store.locks.iterdir()))
        old = time.time() - LOG_SECONDS
        if store.logs.is_dir():
            for one in list(store.logs.iterdir()):
                if one.suffix == ".part" or one.stat().st_mtime < old:
                    count += _remove(one)
        for one in list(store.root.glob("format.*.part")):
            count += _remove(one)
    except OSError as error:
        raise store_error(error, store.root, "clearing what dead processes left") from error
    return count


def collect(store: Store, max_bytes: int, *, in_use_seconds: float = IN_USE_SECONDS) -> Collected:
    """Sweep and trim: what `tilewright cache gc` does."""
    leavings = sweep(store)
    trimmed = trim(store, max_bytes, in_use_seconds=in_use_seconds)
    return Collected(trimmed.entries, trimmed.bytes, leavings, trimmed.left_entries, trimmed.left_bytes)


def after_build(store: Store, max_bytes: int, keep: Collection[str], added_bytes: int) -> Collected | None:
    """Keep the bound after a build; the whole store is measured only when it may matter."""
    stamp = store.root / "measured"
    try:
        fresh = time.time() - stamp.stat().st_mtime < SCAN_SECONDS
    except OSError:
        fresh = False
    if fresh and added_bytes * SCAN_FRACTION < max_bytes:
        return None
    leavings = sweep(store)
    trimmed = trim(store, max_bytes, keep=keep)
    try:
        stamp.touch()
    except OSError as error:
        raise store_error(error, store.root, "noting its size") from error
    return Collected(trimmed.entries, trimmed.bytes, leavings, trimmed.left_entries, trimmed.left_bytes)


def other_versions(store: Store) -> list[Path]:
    """Stores of other versions beside this one; they are left alone until asked for."""
    return sorted(
        one for one in store.root.parent.glob("kernels-v*") if one.name != f"kernels-v{STORE_SCHEMA}" and one.is_dir()
    )


def reset(store: Store) -> None:
    """Remove the whole store, whatever its version."""
    try:
        if store.root.exists():
            shutil.rmtree(store.root)
    except OSError as error:
        raise store_error(error, store.root, "removing it") from error
