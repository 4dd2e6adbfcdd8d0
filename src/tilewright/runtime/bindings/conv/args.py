"""The Python mirror of include/tilewright/conv_args.h; a test compares every size and offset with the compiler."""

from __future__ import annotations

import ctypes

SPATIAL = 3
MAX_D = 2

_Pixels = ctypes.c_int64 * SPATIAL
_Strides = ctypes.c_int64 * (SPATIAL + 2)


class ConvArgs(ctypes.Structure):
    """tw_conv_args."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("filters", ctypes.c_int64),
        ("size", _Pixels),
        ("window", _Pixels),
        ("out", _Pixels),
        ("stride", _Pixels),
        ("dilation", _Pixels),
        ("before", _Pixels),
        ("x", ctypes.c_void_p),
        ("w", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("d", ctypes.c_void_p * MAX_D),
        ("x_strides", _Strides),
        ("w_strides", _Strides),
        ("y_strides", _Strides),
        ("d_strides", _Strides * MAX_D),
    )


# The C names of what <tilewright/conv_args.h> declares, for the test that compares them with the header.
ARGS: dict[str, type[ctypes.Structure]] = {"tw_conv_args": ConvArgs}
CONSTANTS = {"TW_CONV_SPATIAL": SPATIAL, "TW_CONV_MAX_D": MAX_D}
