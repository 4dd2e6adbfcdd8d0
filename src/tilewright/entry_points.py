"""What installed packages publish for us, read from their folders.

`importlib.metadata` answers the same and brings a parser of mail headers along, whose import takes longer than the rest
of the question; it is asked where packages are elsewhere than in plain folders (zip files, eggs, finders of others).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from tilewright.dataclass import NamedTuple


class EntryPoint(NamedTuple):
    """One line of a package's `entry_points.txt`."""

    name: str
    value: str
    group: str
    package: str  # what pip calls it; empty where it does not say

    @property
    def module(self) -> str:
        return self.value.partition("[")[0].partition(":")[0].strip()

    def load(self) -> Any:
        target, _, extras = self.value.partition("[")
        module, *names = (part.strip() for part in target.split(":"))
        if (
            not all(map(_is_dotted, (module, *names)))
            or len(names) > 1
            or (extras and not extras.rstrip().endswith("]"))
        ):
            raise ImportError(f"{self.value!r} is no name of a module and what is in it")
        return reduce(getattr, filter(None, ".".join(names).split(".")), import_module(module))


def _is_dotted(text: str) -> bool:
    """Whether a text is names with dots between them.  Without a pattern: compiling one takes longer than the rest."""
    return text.replace(".", "_").replace("_", "a").isalnum()


def published(prefix: str) -> list[EntryPoint]:
    """Those of all packages whose group begins so; of a package that is on the path twice, the first one's."""
    points, seen = [], set[str]()
    for package, text in _in_folders() if _plain() else _by_metadata():
        if prefix not in text:
            continue  # most are not about us: their texts are not parsed
        name = package().replace("_", "-").casefold()
        if name not in seen:
            seen.add(name)
            points += [point for point in parsed(text, package()) if point.group.startswith(prefix)]
    return points


def parsed(text: str, package: str) -> Iterator[EntryPoint]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and not line.startswith("#") and "=" in line:
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip(), group, package)


def _plain() -> bool:
    """Whether packages can be in plain folders alone."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return False
    return not any(place.endswith(".egg") or os.path.isfile(place) for place in sys.path)  # noqa: PTH113


def _read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read()
    except OSError:
        return ""


_Published = Iterator[tuple[Any, str]]  # a package's name, asked for where it is wanted, and its text


def _in_folders() -> _Published:
    for place in sys.path:
        try:
            names = os.listdir(place or ".")  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                where = os.path.join(place, name)  # noqa: PTH118
                yield (lambda where=where, name=name: _name(where, name)), _read(where, "entry_points.txt")


def _name(where: str, folder: str) -> str:
    for file in ("METADATA", "PKG-INFO"):
        for line in _read(where, file).partition("\n\n")[0].splitlines():
            word, _, name = line.partition(":")
            if word.casefold() == "name" and name.strip():
                return name.split()[0]
    return folder.rpartition(".")[0].partition("-")[0]


def _by_metadata() -> _Published:
    from importlib.metadata import distributions

    for package in distributions():
        yield (lambda package=package: str(package.metadata["Name"] or "")), package.read_text("entry_points.txt") or ""
