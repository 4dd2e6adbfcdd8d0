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

_ours: set[type[Any]] = {tuple, dict}  # what a plan is made of; dictionaries are those that ctypes keeps references in
_ctypes = (ctypes.Structure, ctypes.Array)


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


def settle(*roots: Any) -> None:
    """These and what they are made of are not looked at any more; other objects that they refer to still are."""
    if _function is None:
        return
    left = list(roots)
    while left:
        one = left.pop()
        if gc.is_tracked(one) and (type(one) in _ours or isinstance(one, _ctypes)):
            _function(one)
            left += gc.get_referents(one)
