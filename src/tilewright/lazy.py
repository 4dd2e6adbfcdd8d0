"""Modules that are imported when something of them is first used.

A first call of a process is mostly imports.  What it does not need, and who imports it cannot do without (explanations,
refusals, files that are written), is named by `module`, and for type checkers imported beside it:

    if TYPE_CHECKING:
        from tilewright.dispatch import notes
    else:
        notes = lazy.module("tilewright.dispatch.notes")
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def whole(name: str) -> ModuleType | None:
    """The module of this name if it is loaded to its end: another thread may be in the middle of it."""
    loaded = sys.modules.get(name)
    return None if getattr(getattr(loaded, "__spec__", None), "_initializing", False) else loaded


class _Lazy(ModuleType):
    """Stands for a module; what is asked of it is asked of the module itself, each time."""

    def __getattr__(self, name: str) -> Any:
        # Whoever imports a module that another thread imports waits for its end.
        return getattr(whole(self.__name__) or import_module(self.__name__), name)


def module(name: str) -> Any:
    """A module by its whole name; the module itself where it is loaded already."""
    return whole(name) or _Lazy(name)


def modules(package: str, *names: str) -> list[Any]:
    """Several of a package."""
    return [module(f"{package}.{name}") for name in names]
