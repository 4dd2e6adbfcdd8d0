"""The manifest `generate` leaves beside its sources: which kernel each file is, and what it was when written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import jsontext

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = 1

_TEXTS = ("name", "file", "language", "op", "arch", "digest", "sha256")


class NotOurs(ValueError):
    """The file is no manifest of kernels, or no longer one; the text says why."""


class OtherVersion(ValueError):
    """The file is a manifest that another version of tilewright wrote."""


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries by file name, every one whole; OSError, NotOurs or OtherVersion where there are none."""
    try:
        data = jsontext.loads((folder / MANIFEST).read_bytes())
    except ValueError as error:
        raise NotOurs(str(error)) from None
    if not isinstance(data, Mapping) or not isinstance(data.get("kernels"), list):
        raise NotOurs("it has no list of kernels")
    schema = data.get("schema")
    if type(schema) is not int:
        raise NotOurs(f"its schema is {schema!r}")
    if schema != MANIFEST_SCHEMA:
        raise OtherVersion(f"schema {schema!r} is not {MANIFEST_SCHEMA}")
    return {str(entry["file"]): entry for entry in map(_entry, range(len(data["kernels"])), data["kernels"])}


def _entry(index: int, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise NotOurs(f"kernels[{index}] is no object")
    for name in _TEXTS:
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            raise NotOurs(f"kernels[{index}] " + (f"has {name} {value!r}" if name in entry else f"has no {name!r}"))
    return dict(entry)
