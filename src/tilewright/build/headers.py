"""Which of our headers a source sees, by content.

A small scanner follows the includes that resolve in our include folders; what is elsewhere belongs
to the compiler and is covered by its identity.  Names are relative to an include folder, so the
answer is the same wherever the package is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tilewright import remembered
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import InternalError

# Both forms, also inside __has_include: where such a test succeeds, the header's content counts.  Each begins with a
# text that is looked for at the speed of memory; that only blanks come before a # is looked at afterwards.
_INCLUDE = re.compile(r"\#[ \t]*include(?:_next)?\b[ \t]*(.*)")
_HAS_INCLUDE = re.compile(r"""__has_include\s*\(\s*([<"][^>"\n]+)""")

# Part of every key, whether or not the source spells it: a library must speak this interface.
ABI_HEADER = "tilewright/abi.h"

_Stamp = remembered.Stamp
_stamp = remembered.stamp_of


@dataclass(frozen=True, slots=True)
class _Header:
    """One header as read: where, its name, its digest and what it includes."""

    place: str
    name: str
    digest: str
    includes: tuple[str, ...]


# Reading is done once a process (a machine, where a store is beside: `remembered`) and again when a file's stamp
# changed: an editing developer is served, and no stamp ever reaches a key.
_read: dict[str, tuple[_Stamp, _Header]] = {}
_closures: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[tuple[tuple[str, _Stamp], ...], dict[str, str]]] = {}


def forget() -> None:
    """Drop what was read, for tests that change headers faster than a clock ticks."""
    remembered.forget()
    _read.clear()
    _closures.clear()


def includes_of(text: str, where: str) -> tuple[str, ...]:
    """Every include of a text as `<name` or `"name`; one that needs the preprocessor is an error."""
    includes: list[str] = []
    spellings = [match.group(1) for match in _INCLUDE.finditer(text) if _begins_line(text, match.start())]
    spellings += [match.group(1) for match in _HAS_INCLUDE.finditer(text)]
    for spelled in spellings:
        closing = {"<": ">", '"': '"'}.get(spelled[:1])
        if closing is None:
            raise InternalError(
                f"{where} includes {spelled.strip()!r}, which only a preprocessor can resolve",
                rule="computed-include",
                value=spelled.strip(),
                remedy="include our headers by a plain name, so that their contents are part of the key",
            )
        includes.append(spelled[0] + spelled[1:].split(closing)[0].strip())
    return tuple(dict.fromkeys(includes))


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")


def _load(place: str, name: str, stamp: _Stamp) -> _Header:
    known = _read.get(place)
    if known is not None and known[0] == stamp:
        return known[1]
    table = remembered.table("headers")
    kept = table.get(place, stamp)
    if not kept:
        with open(place, "rb") as file:  # noqa: PTH123  some dozens in a first call
            data = file.read()
        includes = includes_of(data.decode("utf-8", errors="replace"), name)
        kept = [sha256(data).hexdigest(), *includes]
        table.put(place, stamp, kept)
    header = _Header(place, name, kept[0], tuple(kept[1:]))
    _read[place] = (stamp, header)
    return header


def _resolve(include: str, from_place: str | None, dirs: tuple[str, ...]) -> tuple[str, str, _Stamp] | None:
    """The place, name and stamp of an include, or None when it is not one of ours."""
    name = include[1:]
    folders = dirs
    if include[0] == '"' and from_place is not None:
        folders = (os.path.dirname(from_place), *dirs)  # noqa: PTH120  strings are half the cost of this path
    plain = not name.startswith(("/", ".")) and "/." not in name and "//" not in name
    for folder in folders:
        place = f"{folder}/{name}" if plain else os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
        stamp = _stamp(place)
        if stamp is None:
            continue
        for folder in dirs:
            if place.startswith(folder + os.sep):
                return place, place[len(folder) + 1 :].replace(os.sep, "/"), stamp
        raise InternalError(
            f"the include {name!r} leaves the include folders",
            rule="include-outside",
            value=name,
            remedy="move the header into an include folder",
        )
    return None


@lru_cache(maxsize=256)
def _of_absolute(folder: Path) -> str:
    return os.path.normpath(folder)


def _whole(folder: Path) -> str:
    return _of_absolute(folder) if folder.is_absolute() else os.path.abspath(folder)  # noqa: PTH100


def header_digests(text: str, include_dirs: Sequence[Path]) -> dict[str, str]:
    """Name and SHA-256 of every header of ours that `text` includes, directly or not, sorted by name."""
    dirs = tuple(map(_whole, include_dirs))
    roots = includes_of(text, "the source")
    known = _closures.get((dirs, roots))
    if known is not None and all(_stamp(place) == stamp for place, stamp in known[0]):
        return known[1]
    seen: dict[str, _Header] = {}
    stamps: dict[str, _Stamp] = {}
    waiting: list[tuple[str, str | None]] = [(root, None) for root in (f"<{ABI_HEADER}", *roots)]
    looked_for: set[str] = set()
    while waiting:
        include, from_place = waiting.pop()
        if include[0] == "<":  # the same wherever it is written
            if include in looked_for:
                continue
            looked_for.add(include)
        resolved = _resolve(include, from_place, dirs)
        if resolved is None or resolved[0] in seen:
            continue
        place, name, stamp = resolved
        header = _load(place, name, stamp)
        seen[place], stamps[place] = header, stamp
        waiting.extend((included, place) for included in header.includes)
    remembered.table("headers").save()
    digests = {header.name: header.digest for header in sorted(seen.values(), key=lambda header: header.name)}
    _closures[(dirs, roots)] = (tuple(stamps.items()), digests)
    return digests
