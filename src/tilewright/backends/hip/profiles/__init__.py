"""Versions of the CK Tile headers.  What differs between them is here and in the glue header an op's part names:
a newer version is a new JSON file beside this one, and for each op a part and a glue header, nothing else.

A profile holds how headers of the version are told (`hip/ck_tile.py` reads the ones on disk) and the C++ names of
element types.  An op's part, which may lie in the op's own package, holds the names only that op uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

from tilewright.errors import InternalError

DEFAULT = "mid-2025"
PACKAGE = "tilewright.backends.hip.profiles"

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Profile:
    """One version of the CK Tile headers, as far as no op matters."""

    name: str
    description: str
    brought: tuple[str, ...]  # files that came with the version: headers with none of them are older
    told_by: tuple[tuple[str, str], ...]  # file and pattern in it; where one is not found the headers are newer
    types: Mapping[str, str]  # dtype to C++ type


def read_part(package: str, path: str, kind: type[Part]) -> Part:
    """A JSON file of a package as a dataclass; a field too many or too few is an error."""
    place = resources.files(package).joinpath(path)
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InternalError(f"there is no header profile {path!r}", rule="header-profile", value=path) from None
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if sorted(data) != sorted(known):
        raise InternalError(
            f"header profile {path} has the fields {sorted(data)}, not {sorted(known)}", rule="header-profile"
        )
    return kind(**{key: _frozen(value) for key, value in data.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


@lru_cache(maxsize=8)
def profile(name: str = DEFAULT) -> Profile:
    return read_part(PACKAGE, f"{name}.json", Profile)


def named(table: Mapping[str, Any], what: str, value: str) -> Any:
    """An entry of a profile's table; legality lets nothing pass that has none."""
    if value not in table:
        raise InternalError(
            f"the header profile has no {what} {value!r}, though legality let it pass",
            rule="header-profile",
            value=value,
        )
    return table[value]
