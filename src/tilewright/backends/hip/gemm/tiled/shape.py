"""What a schedule of our own kernels comes to: element types, instructions, LDS, registers.

The C++ asserts the same numbers (`hip/matrix.h`, `hip/gemm/tiled`).
"""

from __future__ import annotations

from math import prod

from tilewright.arch import Arch
from tilewright.backends.hip.gemm.tiled.schedule import TiledSchedule
from tilewright.backends.hip.matrix import (
    ACCESS_BYTES,
    MOST_AT_ONCE,
    SIDE,
    instruction,
    is_fp8,
    lane_bytes,
    multiplies,
)
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.spec import GemmSignature

SUM_BYTES = 4
ROW_GAP = 4  # sums between rows that leave through LDS
WIDEST_STORE = 8  # elements of E: more would only hold up registers


def multiplied(signature: GemmSignature, arch: Arch) -> tuple[str, str] | None:
    """As which types A and B are multiplied; None where the arch has no instruction that is exact for them.

    Elements are as they are where an instruction takes them.  Else fp8 becomes bf16, which has all its numbers and none
    of them subnormal (gfx90a takes subnormals for zeros), or fp16 beside fp16; and other mixtures become fp32.
    """
    a, b = signature.dtype_a, signature.dtype_b
    if is_fp8(a) and is_fp8(b):
        native = f"{a}_{b}_fp32" in (arch.warp_tiles or {})
        return (a, b) if native else ("bf16", "bf16") if multiplies("bf16", arch) else None
    others = {dtype for dtype in (a, b) if not is_fp8(dtype)}
    wide = others.pop() if len(others) == 1 else "fp32"
    if wide == "fp16" and "fp8_e5m2" in (a[:8], b[:8]) and "mfma" in arch.features:
        wide = "fp32"
    return (wide, wide) if multiplies(wide, arch) else None


def threads(schedule: TiledSchedule, arch: Arch) -> int:
    return arch.warp_size * prod(schedule.warp_grid)


def lds_bytes(schedule: TiledSchedule, size: int) -> int:
    """What a block stages, or the sums that leave at once, in the same place."""
    m, n, k = schedule.tile
    return max(
        schedule.stages * (m + n) * (k * size + ACCESS_BYTES), schedule.warp_grid[0] * SIDE * (n + ROW_GAP) * SUM_BYTES
    )


class Share(NamedTuple):
    """A thread's part of a tile of an operand: as `TileFetch`."""

    rows: int
    width: int
    pieces: int

    def whole(self, lines: int, deep: int, lanes: int, along_k: bool) -> bool:
        """Whether threads share the tile out evenly."""
        if not self.width or self.pieces > lanes or lanes % self.pieces:
            return False
        return (lines if along_k else deep) % (lanes // self.pieces * self.rows) == 0


def share(dtype: str, as_: str, lines: int, deep: int, lanes: int, along_k: bool) -> Share:
    rows = 1 if along_k else 4 // DTYPES[as_].bytes
    width = min(ACCESS_BYTES // DTYPES[dtype].bytes, lines * deep // (lanes * rows))
    return Share(rows, width, (deep if along_k else lines) // max(1, width))


def operands(signature: GemmSignature, schedule: TiledSchedule, arch: Arch) -> list[tuple[str, str, str, int, bool]]:
    """Name, type in memory, type as multiplied, lines, and whether k is contiguous, of A and B."""
    kinds = multiplied(signature, arch)
    assert kinds is not None
    m, n, _ = schedule.tile
    return [
        ("A", signature.dtype_a, kinds[0], m, signature.layout[0] == "r"),
        ("B", signature.dtype_b, kinds[1], n, signature.layout[1] != "r" or signature.variant == "preshuffle"),
    ]


def registers(signature: GemmSignature, schedule: TiledSchedule, arch: Arch) -> int:
    """Of a lane, counted: sums, what it holds of the next stage, where it reads, fragments of this one."""
    (m, n, k), lanes = schedule.tile, threads(schedule, arch)
    kinds = multiplied(signature, arch)
    assert kinds is not None
    held = words = 0
    for _, dtype, as_, lines, along_k in operands(signature, schedule, arch):
        own = share(dtype, as_, lines, k, lanes, along_k)
        transposed = not along_k and DTYPES[as_].bytes == 1  # bytes change places in as many registers more
        held += -(-lines * k * DTYPES[dtype].bytes // lanes // 4) * (2 if transposed else 1)
        held += lines * k // lanes // max(1, own.width)  # offsets
        words = max(words, -(-lane_bytes(as_, arch, k) // 4))
    fragments = words * (m // (SIDE * schedule.warp_grid[0]) + n // (SIDE * schedule.warp_grid[1]))
    steps = k * DTYPES[kinds[0]].bytes // (lane_bytes(kinds[0], arch, k) * instruction(kinds[0], arch).groups)
    return m * n // lanes + held + fragments * (steps if fragments * steps <= MOST_AT_ONCE else 1)


def width_c(signature: GemmSignature) -> int:
    return min(WIDEST_STORE, ACCESS_BYTES // DTYPES[signature.dtype_c].bytes)
