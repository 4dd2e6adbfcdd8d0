"""The arguments of both stages: the mirror of regionstats/args.h."""

from __future__ import annotations

import ctypes

RANK = 3
_Three = ctypes.c_int64 * RANK


class Region(ctypes.Structure):
    """tw_regionstats_region."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("chunks", ctypes.c_int64),
        ("size", _Three),
        ("step", _Three),
        ("lengths", ctypes.c_void_p),
    )


class PartialArgs(ctypes.Structure):
    """tw_regionstats_partial_args."""

    _fields_ = (
        ("region", Region),
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("peaks", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("x_spatial_stride", _Three),
        ("scale", ctypes.c_double),
    )


class CombineArgs(ctypes.Structure):
    """tw_regionstats_combine_args."""

    _fields_ = (
        ("region", Region),
        ("sums", ctypes.c_void_p),
        ("peaks", ctypes.c_void_p),
        ("mean", ctypes.c_void_p),
        ("peak", ctypes.c_void_p),
        ("mean_stride", ctypes.c_int64),
        ("peak_stride", ctypes.c_int64),
    )
