"""What learned models see of a problem with kernels, filled in by the selection library where it knows the columns.

The columns and their order are those of the op's own `features` module, which training uses.  Columns of words are left
to the model, which knows their numbers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.backends.native import NativeKernels
from tilewright.native.judge import native_kernels
from tilewright.native.library import library
from tilewright.ops.base import KernelSpec
from tilewright.ops.native import NativeFeatures

Array = np.ndarray[Any, Any]

_pointer, _int = ctypes.c_void_p, ctypes.c_int64
# `tw_select_features`; of a problem alone; and of it with some kernels.
_ARGUMENTS = (ctypes.c_char_p, _pointer, _int, _int, _pointer, _pointer)
_OF_PROBLEM = (_pointer, _pointer, _pointer)
_OF_KERNELS = (_pointer, _pointer, _int, _int, _pointer, _int, _pointer)


class Features:
    """Of kernels that are asked about together."""

    def __init__(
        self, functions: Sequence[Any], kernels: NativeKernels, described: NativeFeatures,
        fields: Mapping[str, Any], count: int, units: int,
    ) -> None:  # fmt: skip
        self._function, *self._in_parts = functions
        self._count, self._units = count, units
        self._problem, self._packed = kernels.problem, struct.Struct(f"={len(kernels.problem_names)}q")
        kinds = {**dict.fromkeys(described.terms, np.float64), **dict.fromkeys(described.switches, np.uint8)}
        self._keep: dict[str, Array] = {
            name: np.ascontiguousarray(fields[name], kind) for name, kind in kinds.items() if fields[name] is not None
        }
        names = (*described.terms, *described.switches)
        places = [self._keep[name].ctypes.data if name in self._keep else None for name in names]
        self._terms = (ctypes.c_void_p * len(names))(*places)
        self._place = ctypes.addressof(self._terms)

    @property
    def places(self) -> tuple[int, int, int]:
        """Where the library's functions of a problem and of kernels, and the terms of the kernels are, for C."""
        of_problem, of_kernels = (ctypes.cast(function, _pointer).value or 0 for function in self._in_parts)
        return of_problem, of_kernels, self._place

    def fill(self, problem: Any, of_problem: int, of_both: int) -> None:
        """Write the numbers of a problem, float32, and those of both, float64 and a row a feature, at these places."""
        packed = self._packed.pack(*self._problem(problem))
        self._function(packed, self._place, self._count, self._units, of_problem, of_both)


def features(
    specs: Sequence[KernelSpec], fields: Mapping[str, Any], units: int, columns: tuple[Any, Any]
) -> Features | None:
    """None where the library is not there, or fills in other columns than these."""
    kernels = native_kernels(specs)
    described: NativeFeatures | None = getattr(kernels, "features", None)
    if kernels is None or described is None or described.columns != columns:
        return None
    native = library(kernels)
    if native is None:
        return None
    functions = (
        native.function("tw_select_features", _ARGUMENTS),
        native.function("tw_select_problem_features", _OF_PROBLEM),
        native.function("tw_select_kernel_features", _OF_KERNELS),
    )
    return None if None in functions else Features(functions, kernels, described, fields, len(specs), units)
