"""Which kernels a store holds, at the price of one listing: an empty file for each entry, named by spec and key.

    <store>/built/<digest of the spec>-<key of the entry>

A mark is a hint: it is made before its entry is put in place and taken away before the entry is, and whoever loads a
kernel looks at the entry itself.  A store that was filled before there were marks gets them when something is built
into it; where nothing may be written, its manifests are read instead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tilewright import jsontext
from tilewright.errors import StoreError

if TYPE_CHECKING:
    from tilewright.build.store import Store

_DIGEST = 64  # characters of one


def _name(manifest: Mapping[str, Any]) -> str:
    """The mark of an entry; empty for a support library."""
    inputs = manifest.get("inputs")
    digest = inputs.get("spec") if isinstance(inputs, Mapping) else ""
    return f"{digest}-{manifest['key']}" if isinstance(digest, str) and len(digest) == _DIGEST else ""


def ensure(store: Store) -> None:
    """Make the folder of marks, with those of entries that are there already."""
    if store.marks.is_dir():
        return
    from tilewright.build.store import store_error

    with store.workspace() as work:
        part = work / store.marks.name
        try:
            part.mkdir()
            for manifest in store.manifests():
                if name := _name(manifest):
                    (part / name).touch()
            part.rename(store.marks)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was first
                raise store_error(error, store.root, "marking its kernels") from error
            import shutil

            shutil.rmtree(part, ignore_errors=True)


def add(store: Store, manifest: Mapping[str, Any]) -> None:
    """Before the entry is there: a kill between the two leaves a mark too many, never one too few."""
    if name := _name(manifest):
        try:
            (store.marks / name).touch()
        except FileNotFoundError:  # someone cleared the store meanwhile
            store.marks.mkdir(exist_ok=True)
            (store.marks / name).touch()


def remove(store: Store, key: str) -> None:
    """Of an entry that goes; a damaged one may leave its mark, which then nobody finds an entry for."""
    with suppress(OSError, ValueError):
        manifest = jsontext.loads(jsontext.read(store.folder(key) / "manifest.json"))
        name = _name(manifest) if isinstance(manifest, dict) and manifest.get("key") == key else ""
        if name:
            (store.marks / name).unlink(missing_ok=True)


def stamp(store: Store) -> int:
    """What distinguishes one state of the marks from another; 0 where there are none."""
    try:
        return os.stat(store.marks).st_mtime_ns  # noqa: PTH116  selections ask this
    except OSError:
        return 0


def digests(store: Store) -> set[str]:
    """Of the specs whose kernels the store seems to hold, for whatever compiler and flags."""
    try:
        names = os.listdir(store.marks)  # noqa: PTH208  thousands of names, no paths
    except (FileNotFoundError, NotADirectoryError):
        return _of_manifests(store)
    except OSError:
        return set()
    return {name[:_DIGEST] for name in names if len(name) > _DIGEST and name[_DIGEST] == "-"}


def _of_manifests(store: Store) -> set[str]:
    """The same of a store without marks, which may be one that cannot be written."""
    try:
        return {name[:_DIGEST] for manifest in store.manifests() if (name := _name(manifest))}
    except StoreError:  # of another version: whoever builds or loads hears of it
        return set()
