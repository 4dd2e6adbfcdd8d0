"""The Python mirror of include/tilewright/gemm_args.h; a test compares every size and offset with the compiler."""

from __future__ import annotations

import ctypes

from tilewright.ops.gemm.spec import MAX_D

_EachD = ctypes.c_int64 * MAX_D


class GemmArgs(ctypes.Structure):
    """tw_gemm_args."""

    _fields_ = (
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("d", ctypes.c_void_p * MAX_D),
        ("e", ctypes.c_void_p),
        ("a_stride", ctypes.c_int64),
        ("b_stride", ctypes.c_int64),
        ("c_stride", ctypes.c_int64),
        ("e_stride", ctypes.c_int64),
        ("d_row_stride", _EachD),
        ("d_col_stride", _EachD),
        ("a_batch_stride", ctypes.c_int64),
        ("b_batch_stride", ctypes.c_int64),
        ("c_batch_stride", ctypes.c_int64),
        ("e_batch_stride", ctypes.c_int64),
        ("d_batch_stride", _EachD),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("b_up", ctypes.c_void_p),
    )


# The C names of what <tilewright/gemm_args.h> declares, for the test that compares them with the header.
ARGS: dict[str, type[ctypes.Structure]] = {"tw_gemm_args": GemmArgs}
CONSTANTS = {"TW_MAX_D": MAX_D}
