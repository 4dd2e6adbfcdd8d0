"""One spec to one file on disk, and its line in the manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.arch import arch
from tilewright.backends.base import Source, backend
from tilewright.codegen.folder import write_if_changed
from tilewright.ops.base import KernelSpec


@dataclass(frozen=True, slots=True)
class Emitted:
    """What became of one spec: its file, whether it was written now, and its manifest entry as JSON."""

    name: str
    file_name: str
    written: bool
    entry: str


@lru_cache(maxsize=64)
def _renderer(arch_name: str) -> Callable[[KernelSpec], Source]:
    return backend(arch(arch_name).backend).render


def emit_one(spec: KernelSpec, folder: Path) -> Emitted:
    source = _renderer(spec.arch)(spec)
    data = source.text.encode()
    fields = {
        "name": spec.name,
        "file": source.file_name,
        "language": source.language,
        "op": spec.op,
        "arch": spec.arch,
        "digest": spec.digest,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    if source.headers:
        fields["headers"] = source.headers
    head = json.dumps(fields)
    entry = f'{head[:-1]}, "spec": {spec.to_json()}}}'
    return Emitted(spec.name, source.file_name, write_if_changed(folder / source.file_name, data), entry)


def emit_many(specs: Sequence[KernelSpec], folder: Path) -> list[Emitted]:
    return [emit_one(spec, folder) for spec in specs]
