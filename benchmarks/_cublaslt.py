"""cublasLt called directly: what its own heuristic offers for a problem, so that a benchmark can time every offer.

The library is the one PyTorch has loaded (its wheels bring it), so both peers are the same release.  Numbers below
are those of cublasLt.h and library_types.h, which keep them from release to release.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

OFFERS = 16
WORKSPACE = 32 << 20  # bytes: what PyTorch gives cuBLAS on such a GPU

_R_32F, _R_16F, _R_8I, _R_32I, _R_16BF, _R_8F_E4M3 = 0, 2, 3, 10, 14, 28
_TYPES = {
    torch.float32: _R_32F,
    torch.float16: _R_16F,
    torch.bfloat16: _R_16BF,
    torch.int8: _R_8I,
    torch.int32: _R_32I,
    torch.float8_e4m3fn: _R_8F_E4M3,
}
_COMPUTE_32F, _COMPUTE_32I, _COMPUTE_FAST_TF32 = 68, 72, 77
_TRANSA, _TRANSB, _FAST_ACCUM = 3, 4, 25  # attributes of an operation
_MAX_WORKSPACE = 1  # attribute of a preference


class _Offer(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class LtError(Exception):
    """cublasLt answered with an error."""


def loaded_library() -> Path | None:
    """The libcublasLt that is mapped into this process."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text(encoding="utf-8").splitlines():
        place = line.partition("/")[1:]
        if "libcublasLt.so" in line:
            return Path("".join(place))
    return None


def _operand(tensor: Any) -> tuple[int, int, int, bool]:
    """Rows, columns and leading stride of the column-major matrix whose transpose this is, and whether it is turned.

    cublasLt sees column-major matrices: a row-major X (p by q) is its transpose there, q by p.
    """
    p, q = tensor.shape
    if tensor.stride(1) == 1 and tensor.stride(0) >= q:
        return q, p, tensor.stride(0), False
    return p, q, tensor.stride(1), True


class CublasLt:
    def __init__(self, device: str = "cuda") -> None:
        torch.matmul(*(torch.ones(16, 16, device=device, dtype=torch.float16) for _ in range(2)))
        place = loaded_library()
        if place is None:
            raise LtError("PyTorch has loaded no libcublasLt")
        self._lib = ctypes.CDLL(str(place))
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        self._one = {torch.int32: ctypes.c_int32(1)}
        self._zero = {torch.int32: ctypes.c_int32(0)}

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._lib, name)(*arguments)
        if status:
            raise LtError(f"{name}: status {status}")

    def _made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *arguments)
        return made

    def _matrix(self, tensor: Any, rows: int, columns: int, stride: int) -> ctypes.c_void_p:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(stride)
        return self._made("cublasLtMatrixLayoutCreate", ctypes.c_int(_TYPES[tensor.dtype]), *sizes)

    def _operation(self, out: Any, tf32: bool, turned: tuple[bool, bool], fp8: bool) -> ctypes.c_void_p:
        whole = out.dtype == torch.int32
        compute = _COMPUTE_32I if whole else _COMPUTE_FAST_TF32 if tf32 else _COMPUTE_32F
        scale = _R_32I if whole else _R_32F
        made = self._made("cublasLtMatmulDescCreate", ctypes.c_int(compute), ctypes.c_int(scale))
        settings: list[tuple[int, Any]] = [
            (at, ctypes.c_int32(int(one))) for at, one in zip((_TRANSA, _TRANSB), turned, strict=True)
        ]
        if fp8:
            settings.append((_FAST_ACCUM, ctypes.c_int8(1)))
        for at, value in settings:
            size = ctypes.c_size_t(ctypes.sizeof(value))
            self._call("cublasLtMatmulDescSetAttribute", made, ctypes.c_int(at), ctypes.byref(value), size)
        return made

    def offers(self, a: Any, b: Any, out: Any, tf32: bool = False, most: int = OFFERS) -> list[Callable[[], None]]:
        """Calls of the algorithms the heuristic names for out = a @ b, its favourite first.

        Row-major out is column-major out^T = b^T a^T, so b comes first.
        """
        rows, columns, stride, turned_b = _operand(b)
        first = self._matrix(b, rows, columns, stride)
        rows, columns, stride, turned_a = _operand(a)
        second = self._matrix(a, rows, columns, stride)
        third = self._matrix(out, out.shape[1], out.shape[0], out.stride(0))
        operation = self._operation(out, tf32, (turned_b, turned_a), a.dtype == torch.float8_e4m3fn)
        preference = self._made("cublasLtMatmulPreferenceCreate")
        room = ctypes.c_uint64(WORKSPACE)
        arguments = (preference, ctypes.c_int(_MAX_WORKSPACE), ctypes.byref(room), ctypes.c_size_t(8))
        self._call("cublasLtMatmulPreferenceSetAttribute", *arguments)
        found, count = (_Offer * most)(), ctypes.c_int()
        problem = (self._handle, operation, first, second, third, third)
        self._call(
            "cublasLtMatmulAlgoGetHeuristic", *problem, preference, ctypes.c_int(most), found, ctypes.byref(count)
        )
        one = self._one.get(out.dtype, ctypes.c_float(1.0))
        zero = self._zero.get(out.dtype, ctypes.c_float(0.0))
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, out)]

        def call_of(offer: _Offer) -> Callable[[], None]:
            def call() -> None:
                self._call(
                    "cublasLtMatmul", self._handle, operation, ctypes.byref(one), addresses[0], first, addresses[1],
                    second, ctypes.byref(zero), addresses[2], third, addresses[2], third, ctypes.byref(offer.algorithm),
                    ctypes.c_void_p(self._workspace.data_ptr()), ctypes.c_size_t(WORKSPACE),
                    ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
                )  # fmt: skip

            return call

        return [call_of(offer) for offer in found[: count.value] if offer.state == 0]
