"""The Python mirror of include/tilewright/abi.h; a test compares every size and offset with the compiler."""

from __future__ import annotations

import ctypes

ABI_VERSION = 1
MAX_D = 2
WORKSPACE_FLAGS = 16384  # bytes at the start of a GPU workspace that are zero between launches

STATUS_NAMES = {
    0: "TW_OK",
    1: "TW_BAD_ARGS",
    2: "TW_DIVISIBILITY",
    3: "TW_LIMIT",
    4: "TW_ALIGNMENT",
    5: "TW_DEVICE",
}

CHECK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
PACKED_BYTES = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
PACK = LAUNCH

_Pair = ctypes.c_int64 * MAX_D


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
        ("d_row_stride", _Pair),
        ("d_col_stride", _Pair),
        ("a_batch_stride", ctypes.c_int64),
        ("b_batch_stride", ctypes.c_int64),
        ("c_batch_stride", ctypes.c_int64),
        ("e_batch_stride", ctypes.c_int64),
        ("d_batch_stride", _Pair),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
    )


class HostTeam(ctypes.Structure):
    """tw_host_team; `run` is called by kernels only, so its type is opaque here."""

    _fields_ = (("threads", ctypes.c_int64), ("run", ctypes.c_void_p))


class KernelEntry(ctypes.Structure):
    """tw_kernel: function pointers as addresses, wrapped one by one by the loader."""

    _fields_ = (
        ("manifest", ctypes.c_char_p),
        ("check", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
        ("packed_bytes", ctypes.c_void_p),
        ("pack", ctypes.c_void_p),
    )


# The C names of the structs, for the test that compares them with the header.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "tw_gemm_args": GemmArgs,
    "tw_host_team": HostTeam,
    "tw_kernel": KernelEntry,
}
