"""Versions of the CK Tile headers.  What differs between them is here and in the glue header an op's part names:
another version is a new JSON file beside this one, and for each op a part and a glue header, nothing else.

A profile holds how headers of the version are told (`hip/ck_tile.py` reads the ones on disk) and the C++ names of
element types.  An op's part, which may lie in the op's own package, holds the names only that op uses, and how headers
are told to have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from importlib import resources
from typing import Any, Protocol, TypeVar, runtime_checkable

from tilewright.dataclass import dataclass
from tilewright.errors import InternalError, ToolchainError, UnknownNameError, nearest

DEFAULT = "mid-2025"  # of sources that are written with no headers at hand
PACKAGE = "tilewright.backends.hip.profiles"

Part = TypeVar("Part")
Sign = tuple[str, str, str]  # a file, a pattern in it (empty: the file alone), and what that is, in words


@dataclass(frozen=True, slots=True)
class Profile:
    """One version of the CK Tile headers, as far as no op matters."""

    name: str
    description: str
    since: str  # year and month, to put versions in order
    brought: tuple[str, ...]  # files that came with the version: headers with none of them are older
    told_by: tuple[Sign, ...]  # headers that have all of it are of the version
    types: Mapping[str, str]  # dtype to C++ type


@dataclass(frozen=True, slots=True)
class Needs:
    """What kernels of one op need of headers of a version."""

    told_by: tuple[Sign, ...]  # without one of these no kernel of the op can be built
    kinds: Mapping[str, tuple[str, ...]]  # kinds of kernels, in the op's words, with the files each includes


@runtime_checkable
class HasProfiles(Protocol):
    """Kernels of an op that come in versions, one a profile."""

    def header_needs(self, version: str) -> Needs | None:
        """What they need under a profile; None where there are none for it."""


def read_part(package: str, path: str, kind: type[Part]) -> Part:
    """A JSON file of a package as a dataclass; a field too many or too few is an error."""
    place = resources.files(package).joinpath(path)
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InternalError(f"there is no header profile {path!r}", rule="header-profile", value=path) from None
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if sorted(data) != sorted(known):
        raise InternalError(
            f"header profile {path} has the fields {sorted(data)}, not {sorted(known)}", rule="header-profile"
        )
    return kind(**{key: _frozen(value) for key, value in data.items()})


def has_part(package: str, path: str) -> bool:
    return resources.files(package).joinpath(path).is_file()


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


@lru_cache(maxsize=8)
def all_profiles(package: str = PACKAGE) -> tuple[Profile, ...]:
    """Every profile there is a file of, the newest first; files with a dot in their names are parts of ops."""
    names = [file.name for file in resources.files(package).iterdir() if file.name.endswith(".json")]
    profiles = [read_part(package, name, Profile) for name in names if name.count(".") == 1]
    return tuple(sorted(profiles, key=lambda known: known.since, reverse=True))


@lru_cache(maxsize=32)
def profile(name: str = DEFAULT) -> Profile:
    known = {entry.name: entry for entry in all_profiles()}
    if name not in known:
        raise UnknownNameError(
            f"{name!r} is no profile of CK Tile headers",
            rule="header-profile",
            value=name,
            remedy=nearest(name, list(known)),
        )
    return known[name]


def named(table: Mapping[str, Any], what: str, value: str, version: str = DEFAULT) -> Any:
    """An entry of a profile's table: the default profile has all that legality lets pass, others may lack some."""
    if value in table:
        return table[value]
    if version == DEFAULT:
        raise InternalError(
            f"the header profile has no {what} {value!r}, though legality let it pass",
            rule="header-profile",
            value=value,
        )
    raise ToolchainError(
        f"kernels with {what} {value} are not written for CK Tile headers of {version}",
        rule="headers-lack",
        value=value,
        remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or another {what}: {', '.join(table)}",
    )
