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


def made_of(*types: type[Any]) -> None:
    """Objects of these types are parts of plans, never change, and are in no cycle."""
    _ours.update(types)
    _others.difference_update(types)


def alone(key: tuple[Any, ...]) -> None:
    """A key of a cache, whose parts are settled with the plan that is made next."""
    if _function is not None:
        _function(key)


def settle(*roots: Any) -> None:
    """These and what they are made of are not looked at any more; other objects that they refer to still are."""
    if _function is None:
        return
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
