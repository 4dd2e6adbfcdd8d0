"""The Python mirror of include/tilewright/abi.h; a test compares every size and offset with the compiler.

What an op's kernels are called with is mirrored in its binding: `tilewright/runtime/bindings/OP/args.py`.
"""

from __future__ import annotations

import ctypes

ABI_VERSION = 5

STATUS_NAMES = {
    0: "TW_OK",
    1: "TW_BAD_ARGS",
    2: "TW_DIVISIBILITY",
    3: "TW_LIMIT",
    4: "TW_ALIGNMENT",
    5: "TW_DEVICE",
    6: "TW_DATA",
}

DATA = 6  # of a launch; the bits from 8 on are the offset of a pointer of the arguments

CHECK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
PACKED_BYTES = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
PACK = LAUNCH


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
        ("clear_bytes", ctypes.c_int64),
    )


# The C names of the structs, for the test that compares them with the header.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "tw_host_team": HostTeam,
    "tw_kernel": KernelEntry,
}
