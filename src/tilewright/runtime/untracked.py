"""Plans out of the garbage collector's sight.

A plan is some fifty small objects, and thousands of plans are kept.  A full collection looks at every object that may
be part of a cycle, so that a program with 8,000 plans would stand still for tens of milliseconds now and then.  A plan
never changes and refers to nothing that refers to it: there is no cycle to find, its objects go when the last reference
goes, and the collector need not look at them.  (CPython does the same with tuples of numbers.)
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterable
from typing import Any

MANY = 64  # plans; fewer set off no full collection, and a new size need not pay for it

_ours: set[type[Any]] = {tuple, dict}  # what a plan is made of; dictionaries are those that ctypes keeps references in
_ctypes = (ctypes.Structure, ctypes.Array)
_others: set[type[Any]] = set()  # types that were seen and are none of these


def _untrack() -> Any:
    api = getattr(ctypes, "pythonapi", None)
    if api is None or sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    function = api.PyObject_GC_UnTrack
    function.argtypes, function.restype = (ctypes.py_object,), None
    return function


_function = _untrack()


# Those of C, once its library is loaded: what settles objects, and what is recorded of types.
_native: tuple[Callable[..., None], Callable[[type[Any], int], int]] | None = None


def use(settle: Callable[..., None], own: Callable[[type[Any], int], int]) -> None:
    """Let C traverse plans from now on; `own(type, 1)` is said of what all types inherit from that are ours."""
    global _native
    if _function is None or any(own(base, 1) for base in _ctypes) or any(own(kind, 0) for kind in _ours):
        return
    _native = settle, own


def made_of(*types: type[Any]) -> None:
    """Objects of these types are parts of plans, never change, and are in no cycle."""
    global _native
    for kind in types:
        if kind not in _ours:
            _ours.add(kind)
            _others.discard(kind)
            if _native is not None and _native[1](kind, 0):
                _native = None  # more types than C was made for


def alone(key: tuple[Any, ...]) -> None:
    """A key of a cache, whose parts are settled with the plan that is made next."""
    if _function is not None:
        _function(key)


def settle(*roots: Any) -> None:
    """These and what they are made of are not looked at any more; other objects that they refer to still are."""
    if _native is not None:
        _native[0](*roots)
    elif _function is not None:
        _settle(roots)


def _settle(roots: Iterable[Any]) -> None:
    """The same without C."""
    left, tracked, referents = list(roots), gc.is_tracked, gc.get_referents
    for item in left:  # which grows
        kind = type(item)
        if kind in _others:
            continue
        if kind not in _ours and not _is_ours(kind):
            _others.add(kind)
        elif tracked(item):
            _function(item)
            left += referents(item)


def _is_ours(kind: type[Any]) -> bool:
    if issubclass(kind, _ctypes):
        _ours.add(kind)
    return kind in _ours
