"""What learned models see of a problem with kernels, filled in by the selection library where it knows the op.

The columns and their order are those of the op's own `features` module, which training uses.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.native.library import library
from tilewright.ops.gemm import features as gemm
from tilewright.ops.gemm.numbers import PROBLEM, problem_numbers

Array = np.ndarray[Any, Any]

_COLUMNS = {"gemm": (gemm.PROBLEM, gemm.INTERACTION)}
_TERMS = ("spans", "block_k", "shares_k", "room", "volume", "fetched", "flow", "flying", "rings", "way_out")
_SWITCHES = ("split", "streamed")
_PACKED = struct.Struct(f"={len(PROBLEM)}q")


class _Terms(ctypes.Structure):
    """`Terms` of gemm_features.h."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (*_TERMS, *_SWITCHES))


class Features:
    """Of kernels that are asked about together."""

    def __init__(self, function: Callable[..., None], fields: Mapping[str, Any], count: int, units: int) -> None:
        self._function, self._count, self._units = function, count, units
        arrays = {name: np.ascontiguousarray(fields[name], np.float64) for name in _TERMS}
        flags = {name: np.ascontiguousarray(fields[name], np.uint8) for name in _SWITCHES if fields[name] is not None}
        self._keep: dict[str, Array] = {**arrays, **flags}
        self._terms = _Terms(**{name: one.ctypes.data for name, one in self._keep.items()})
        self._place = ctypes.addressof(self._terms)

    def fill(self, problem: Any, of_problem: int, of_both: int) -> None:
        """Write the numbers of a problem, float32, and those of both, float64 and a row a feature, at these places."""
        packed = _PACKED.pack(*problem_numbers(problem))
        self._function(packed, self._place, self._count, self._units, of_problem, of_both)


def features(op: str, fields: Mapping[str, Any], count: int, units: int, columns: tuple[Any, Any]) -> Features | None:
    """None where the library is not there, or fills in other columns than these."""
    native = library()
    if native is None or _COLUMNS.get(op) != columns or op not in native.features:
        return None
    return Features(native.features[op], fields, count, units)
