"""What a GEMM kernel computes (signature) and how (schedule).

    E = epilogue(alpha * A.B + beta * C, D0, D1)

One vocabulary: *tile* is the block's work (on the CPU: the cache block), *warp grid* how many warps
share it, *warp tile* one matrix instruction's shape (on the CPU: the register block).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ops.base import KernelSpec, read_spec

Shape = tuple[int, int, int]

VARIANTS = ("standard", "preshuffle", "multi_d")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")


@dataclass(frozen=True, slots=True)
class GemmSignature:
    """Kernels with equal signatures are interchangeable."""

    variant: str
    dtype_a: str
    dtype_b: str
    dtype_acc: str
    dtype_c: str  # of C and E
    dtype_d: str  # of the D tensors; equals dtype_c when there are none
    layout: str  # A, B, and C/E: r row-major, c column-major
    epilogue: str = "PassThrough"
    num_d: int = 0

    def label(self) -> str:
        inputs = self.dtype_a if self.dtype_a == self.dtype_b else f"{self.dtype_a}x{self.dtype_b}"
        parts = [inputs if self.dtype_c == self.dtype_a else f"{inputs}_to_{self.dtype_c}", self.layout]
        if self.variant == "preshuffle":
            parts.append("preshuffle")
        if self.epilogue != "PassThrough":
            parts.append(self.epilogue + (f"_d{self.num_d}" if self.num_d else ""))
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class GemmSchedule:
    """How the signature is computed; every target's schedules have these fields."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape = (1, 1, 1)
    scheduler: str = "default"
    store: str = "direct"  # how results leave: direct, cshuffle, tma
    pad: tuple[bool, bool, bool] = (True, True, True)  # edge code for sizes that are no multiple, along m, n, k
    persistent: bool = False
    split_k: int = 1
    unroll: int = 1  # k steps in one turn of the inner loop
    prefetch: int = 0  # CPU: how many k steps ahead; GPU: stages in flight
    vector: Shape = (0, 0, 0)  # widths of A, B, C accesses in elements; 0 is the native one
    cluster: Shape = (1, 1, 1)  # blocks that share what they fetch, along m, n, k

    def label(self) -> str:
        def shape(value: Shape) -> str:
            return "x".join(str(one) for one in value)

        parts = [self.pipeline, shape(self.tile), shape(self.warp_grid), shape(self.warp_tile)]
        if self.split_k > 1:
            parts.append(f"splitk{self.split_k}")
        if self.cluster != (1, 1, 1):
            parts.append(f"cluster{shape(self.cluster)}")
        if self.persistent:
            parts.append("persistent")
        if not all(self.pad):
            parts.append("pad" + "".join(axis for axis, on in zip("mnk", self.pad, strict=True) if on))
        return "_".join(parts)


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, "gemm", GemmSignature, GemmSchedule)
