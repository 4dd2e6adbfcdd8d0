"""JSON that others may have written: read with one kind of error, and never deeper than our own files go."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

# Deeper than any file of ours; what reads or writes the data afterwards may then recurse without a care.
MOST_NESTED = 64
MOST_BYTES = 256 << 20


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode), "a device"),
)


def not_a_file(path: Path) -> str:
    """What a path is instead of a file ("a pipe"), empty for a file; nothing is opened.  OSError where nothing is."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a symbolic link that leads back to itself"
        raise
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def read(path: Path, *, regular: bool = True) -> bytes:
    """The text of a file that is no larger than ours get; with `regular`, of no pipe or device, which may never end."""
    kind = path.stat().st_mode
    if regular and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # of a folder the system says it better
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return data


def loads(text: bytes | str) -> Any:
    """The data of a JSON text; whatever is wrong with it is a ValueError, a name that is there twice too."""
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > MOST_NESTED:
            raise ValueError(f"it is nested deeper than {MOST_NESTED} levels")
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, (dict, list))
        ]
    return data
