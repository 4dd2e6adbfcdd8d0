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


class _Lazy(ModuleType):
    """Stands for a module; what is asked of it is asked of the module itself, each time."""

    def __getattr__(self, name: str) -> Any:
        loaded = sys.modules.get(self.__name__)
        return getattr(loaded or import_module(self.__name__), name)


def module(name: str) -> Any:
    """A module by its whole name; the module itself where it is loaded already."""
    return sys.modules.get(name) or _Lazy(name)


def modules(package: str, *names: str) -> list[Any]:
    """Several of a package."""
    return [module(f"{package}.{name}") for name in names]
