"""Keeping the store small and clean: least recently used entries go first, leavings of the dead too."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tilewright import jsontext
from tilewright.build.locks import FileLock
from tilewright.build.store import FORMAT, MANIFEST, OWNER_LOCK, SHARD, Store, remove_tree, store_error
from tilewright.dataclass import dataclass
from tilewright.errors import StoreError

# An entry used this recently may be about to be loaded by another process.
IN_USE_SECONDS = 300.0
# Without working locks nobody knows whether an owner lives; a day-old folder has none.
ABANDONED_SECONDS = 86400.0
LOG_SECONDS = 7 * 86400.0
# After a build the whole store is only measured when enough was added, or after this long.
SCAN_SECONDS = 3600.0
SCAN_FRACTION = 64
STAMP = "measured"  # its time says when the store was measured


@dataclass(frozen=True, slots=True)
class EntryUse:
    key: str
    bytes: int
    used: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a collection removed and what it left."""

    entries: int = 0
    bytes: int = 0
    leavings: int = 0  # work folders, locks and logs
    left_entries: int = 0
    left_bytes: int = 0
    in_use: int = 0  # entries that had to go, and stay because they were used just now
    foreign: tuple[str, ...] = ()  # what a reset left, being no part of the store

    def plus(self, later: Cleaned) -> Cleaned:
        """This and a later collection together."""
        removed = (self.entries + later.entries, self.bytes + later.bytes, self.leavings + later.leavings)
        return replace(later, entries=removed[0], bytes=removed[1], leavings=removed[2], foreign=self.foreign)


def usage(store: Store) -> list[EntryUse]:
    """Size and last use of every entry, the least recently used first."""
    uses: list[EntryUse] = []
    for key in store.all_keys():
        size, used = 0, 0.0
        try:
            with os.scandir(store.folder(key)) as files:
                for file in files:
                    status = file.stat()
                    size += status.st_size
                    if file.name == MANIFEST:
                        used = status.st_mtime
        except NotADirectoryError:
            size = store.folder(key).lstat().st_size  # a file in an entry's place: it can go first
        except FileNotFoundError:
            continue  # another process removed it just now
        uses.append(EntryUse(key, size, used))
    return sorted(uses, key=lambda use: (use.used, use.key))


def trim(
    store: Store, max_bytes: int, *, keep: Collection[str] = (), in_use_seconds: float = IN_USE_SECONDS
) -> Cleaned:
    """Remove least recently used entries until the store fits; never one in `keep` or in use just now."""
    entries = usage(store)
    total = sum(entry.bytes for entry in entries)
    removed, freed, in_use, recent = 0, 0, 0, time.time() - in_use_seconds
    for entry in entries:
        if total - freed <= max_bytes:
            break
        if entry.key in keep:
            continue
        if entry.used > recent and in_use_seconds > 0:
            in_use += 1
            continue
        store.discard(entry.key)
        removed += 1
        freed += entry.bytes
    return Cleaned(removed, freed, 0, len(entries) - removed, total - freed, in_use)


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
            count += sum(_sweep_work(path) for path in list(store.temporary.iterdir()))
        if store.locks.is_dir():
            count += sum(_sweep_lock(path) for path in list(store.locks.iterdir()))
        old = time.time() - LOG_SECONDS
        if store.logs.is_dir():
            for path in list(store.logs.iterdir()):
                if path.suffix == ".part" or path.stat().st_mtime < old:
                    count += _remove(path)
        for path in list(store.root.glob("format.*.part")):
            count += _remove(path)
    except OSError as error:
        raise store_error(error, store.root, "clearing what dead processes left") from error
    return count


def clean(store: Store, max_bytes: int, *, in_use_seconds: float = IN_USE_SECONDS) -> Cleaned:
    """Sweep and trim: what `tilewright cache gc` does."""
    leavings = sweep(store)
    return replace(trim(store, max_bytes, in_use_seconds=in_use_seconds), leavings=leavings)


def after_build(store: Store, max_bytes: int, keep: Collection[str], added_bytes: int) -> Cleaned | None:
    """Keep the bound after a build; the whole store is measured only when it may matter."""
    stamp = store.root / STAMP
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
    return replace(trimmed, leavings=leavings)


def other_versions(store: Store) -> list[Path]:
    """Stores of other versions beside this one, known by their format files; they are left alone until named."""
    return sorted(
        root
        for root in store.root.parent.glob("kernels-v*")
        if root != store.root and _format_of(root) is not None and root.name == f"kernels-v{_format_of(root)}"
    )


def _format_of(root: Path) -> int | None:
    """What a store's own file says of its format; None where it is not a store's."""
    try:
        data = jsontext.loads(jsontext.read(root / FORMAT))
    except (OSError, ValueError):
        return None
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, int) else None


def reset(store: Store) -> Cleaned:
    """Remove all that is the store's, whatever its version; the answer names what is not (`foreign`), and stays.

    A folder of this name without a format file is somebody else's, and refused.
    """
    root = store.root
    if not os.path.lexists(root):
        return Cleaned()
    entries = size = leavings = 0
    if not (root / FORMAT).is_file():
        raise StoreError(
            f"{root} has no {FORMAT}: a kernel store would, so nothing in it is removed",
            rule="store-foreign",
            value=str(root),
            remedy="look at the folder and remove it yourself, or set TILEWRIGHT_CACHE_DIR to another folder",
        )
    try:
        for key in list(store.all_keys(any_format=True)):
            size += _size(store.folder(key))
            remove_tree(store.folder(key))
            entries += 1
        for folder in (store.temporary, store.locks, store.logs, store.marks):
            if folder.is_dir() and not folder.is_symlink():
                leavings += len(list(folder.iterdir())) if folder != store.marks else 0
                remove_tree(folder)
        for folder in (*_shards(store.entries), store.entries):
            with suppress(OSError):  # not empty: something in it is not ours
                folder.rmdir()
        left = sorted(path.name for path in root.iterdir() if path.name not in (FORMAT, STAMP))
        # Last, so that a reset that was interrupted can be done again.
        for path in (root / STAMP, *root.glob("format.*.part"), root / FORMAT):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            root.rmdir()
    except OSError as error:
        raise store_error(error, root, "removing it") from error
    return Cleaned(entries, size, leavings, foreign=tuple(left))


def _size(folder: Path) -> int:
    """Bytes of the files of an entry; what cannot be looked at counts nothing."""
    try:
        return sum(path.lstat().st_size for path in folder.iterdir())
    except OSError:
        return 0


def _shards(entries: Path) -> list[Path]:
    try:
        return [shard for shard in entries.iterdir() if shard.is_dir() and re.fullmatch(SHARD, shard.name)]
    except OSError:
        return []
