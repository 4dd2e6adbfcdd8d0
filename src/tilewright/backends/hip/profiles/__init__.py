"""Versions of the CK Tile headers.  What differs between them is here and in the glue header a profile names:
a newer version is a new JSON file beside this one and a new glue header, nothing else.

A profile holds the C++ names of types, pipelines, schedulers and stores; `hip/ck_tile.py` tells which
profile the headers on disk are of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.errors import InternalError

DEFAULT = "mid-2025"


@dataclass(frozen=True, slots=True)
class Profile:
    """One version of the CK Tile headers."""

    name: str
    description: str
    glue: str  # our header that turns a Config into this version's templates
    compile_flags: tuple[str, ...]  # what the templates want beyond the flags of any kernel
    types: Mapping[str, str]  # dtype to C++ type
    pipelines: Mapping[str, Mapping[str, Any]]  # pipeline to class and includes; its own header alone does not compile
    schedulers: Mapping[str, str]
    stores: Mapping[str, str]  # store to the class of the glue header


@lru_cache(maxsize=8)
def profile(name: str = DEFAULT) -> Profile:
    place = resources.files("tilewright.backends.hip.profiles").joinpath(f"{name}.json")
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InternalError(f"there is no header profile {name!r}", rule="header-profile", value=name) from None
    known = [one.name for one in fields(Profile)]
    if sorted(data) != sorted(known):
        raise InternalError(
            f"header profile {name} has the fields {sorted(data)}, not {sorted(known)}", rule="header-profile"
        )
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return Profile(**values)
