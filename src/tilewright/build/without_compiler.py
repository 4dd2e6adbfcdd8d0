"""A filled store on a machine without a compiler: entries by what was compiled, whoever compiled it.

The key of a build names the compiler, and where there is none nobody can say the key.  Nothing can be compiled there,
so which compiler made an entry is no question: spec, source and our headers must be the same, and of several such
entries the newest counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.backends.base import Source, source_dirs
from tilewright.build.key import source_inputs
from tilewright.build.store import SHARD, Entry, Store
from tilewright.errors import StoreError
from tilewright.ops.base import KernelSpec

_Stamps = tuple[tuple[str, int], ...]
# Manifests by the digest of their source, read again when a folder of entries changed.
_read: dict[Path, tuple[_Stamps, dict[str, list[Mapping[str, Any]]]]] = {}


def stored(
    store: Store, source: Source, arch: str, spec: KernelSpec | None = None, extra: str = "", op: str = ""
) -> Entry | None:
    """The newest sound entry that was compiled from this; None where there is none."""
    ops = (spec.op,) if spec is not None else (op,) if op else ()
    places = source_dirs(arch, ops)
    wanted = source_inputs(source, arch, places, spec=spec, extra=extra)
    manifests = [manifest for manifest in _by_source(store).get(str(wanted["source"]), ()) if _is_of(manifest, wanted)]
    for manifest in sorted(manifests, key=lambda manifest: -float(manifest.get("built_at", 0))):
        try:
            entry = store.lookup(str(manifest["key"]))
        except StoreError as error:
            if error.rule != "store-corrupt" or len(manifests) == 1:
                raise
            continue
        if entry is not None:
            return entry
    return None


def _is_of(manifest: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(manifest["inputs"].get(name) == value for name, value in wanted.items())


def _by_source(store: Store) -> dict[str, list[Mapping[str, Any]]]:
    stamps = _stamps(store)
    known = _read.get(store.root)
    if known is not None and known[0] == stamps:
        return known[1]
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in store.manifests():
        by_source.setdefault(str(manifest.get("inputs", {}).get("source", "")), []).append(manifest)
    _read[store.root] = (stamps, by_source)
    return by_source


def _stamps(store: Store) -> _Stamps:
    try:
        shards = [shard for shard in store.entries.iterdir() if re.fullmatch(SHARD, shard.name)]
        return tuple(sorted((shard.name, shard.stat().st_mtime_ns) for shard in shards))
    except OSError:
        return ()
