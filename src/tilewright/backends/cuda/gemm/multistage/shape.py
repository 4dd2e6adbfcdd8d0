"""The arithmetic of a multistage kernel's resources (gpu/multistage_shape.h).

The field `vector` is what promises alignment: rows of A and B are copied that many elements at a time, 16, 8 or 4
bytes, and must be aligned to it.  A vector of one element that is shorter than four bytes takes rows that start
anywhere: words around them are copied, and moved into place in shared memory.
"""

from __future__ import annotations

from tilewright.backends.cuda.gemm.multistage.schedule import MultistageSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

FP8 = ("fp8_e4m3", "fp8_e5m2")


def warp_tile(dtype: str) -> Shape:
    """One mma.sync; for exact fp32 what 32 lanes multiply before they read again."""
    return (16, 32, 1) if dtype == "fp32" else (16, 8, 32 // DTYPES[dtype].bytes)


def unit_columns(dtype: str) -> int:
    """Of a warp's part: two instructions; `Matrix::n` in primitives/matrix.h."""
    return 32 if dtype == "fp32" else 16


def k_bytes(dtype: str) -> tuple[int, ...]:
    """What a stage may hold of k."""
    return (32, 64) if dtype == "fp32" else (64, 128)


def single(dtype: str, along_k: bool) -> bool:
    """Whether an operand is copied float by float and turned on the way; `Operand::single` in multistage_shape.h."""
    return dtype == "fp32" and along_k


def settled(dtype: str, along_k: bool, vector: int) -> bool:
    """Whether an operand is moved into place in shared memory; `Operand::settled` in multistage_shape.h."""
    size = DTYPES[dtype].bytes
    return vector * size < 4 or (size == 1 and not along_k)


def _operand_bytes(dtype: str, lines: int, deep: int, along_k: bool, vector: int, stages: int) -> int:
    tile = lines * deep * DTYPES[dtype].bytes
    if single(dtype, along_k):
        return stages * (tile + 16 * deep)
    if not settled(dtype, along_k, vector):
        return stages * tile
    return stages * (tile + 16 * (lines if along_k else deep)) + 2 * tile


def shared_bytes(signature: GemmSignature, schedule: MultistageSchedule) -> int:
    """As `Multistage::shared_bytes` in multistage_shape.h."""
    (m, n, k), stages = schedule.tile, schedule.stages
    ring = _operand_bytes(signature.dtype_a, m, k, signature.layout[0] == "r", schedule.vector[0], stages)
    ring += _operand_bytes(signature.dtype_b, n, k, signature.layout[1] == "c", schedule.vector[1], stages)
    return max(ring, schedule.warp_grid[0] * schedule.warp_tile[0] * n * 4)


def multistage(
    signature: GemmSignature,
    m: int,
    n: int,
    k_bytes: int,
    warps: tuple[int, int],
    stages: int,
    vector_bytes: int | tuple[int, int] = 16,
    dealing: str = "tiles",
) -> MultistageSchedule:
    """`vector_bytes` of both operands, or of A and B; 0 is any alignment."""
    sizes = DTYPES[signature.dtype_a].bytes, DTYPES[signature.dtype_b].bytes
    pair = (vector_bytes, vector_bytes) if isinstance(vector_bytes, int) else vector_bytes
    return MultistageSchedule(
        tile=(m, n, k_bytes // sizes[0]),
        warp_tile=warp_tile(signature.dtype_a),
        warp_grid=(*warps, 1),
        stages=stages,
        vector=(max(1, pair[0] // sizes[0]), max(1, pair[1] // sizes[1])),
        dealing=dealing,
    )


def turned(signature: GemmSignature) -> bool:
    """Whether bytes whose lines are contiguous are turned in shared memory."""
    return DTYPES[signature.dtype_a].bytes == 1 and signature.layout[:2] != "rc"


def most_sums(signature: GemmSignature, vector: int) -> int:
    """Of one thread; `vector` is the narrower one.  Registers also hold widened fp8, bytes being turned or moved."""
    fp8 = signature.dtype_a in FP8
    if fp8 and (vector == 1 or turned(signature)):
        return 32
    return 64 if fp8 or turned(signature) or signature.dtype_a == "tf32" else 128
