"""Schedules of NVIDIA's multistage pipeline, and the arithmetic of their resources.

The field `vector` is what promises alignment: rows of A and B are copied that many elements at a time, 16, 8 or 4
bytes, and must be aligned to it.  A vector of one element that is shorter than four bytes takes rows that start
anywhere: words around them are copied, and moved into place in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

FP8 = ("fp8_e4m3", "fp8_e5m2")
# Tile, warps, stages and dealing of kernels for exact fp32, 64 bytes of k each; split_k also stands for tiles.
PLAIN: tuple[tuple[int, int, tuple[int, int], int, str], ...] = (
    (256, 128, (4, 2), 4, "tiles"),
    (256, 128, (4, 2), 4, "stream_k"),
    (128, 256, (2, 4), 4, "tiles"),
    (128, 256, (2, 4), 4, "stream_k"),
    (128, 128, (2, 2), 3, "split_k"),
    (128, 128, (2, 2), 3, "stream_k"),
    (128, 64, (4, 1), 4, "split_k"),
    (64, 128, (2, 2), 4, "split_k"),
    (64, 64, (2, 2), 3, "split_k"),
    (64, 64, (2, 2), 4, "stream_k"),
    (32, 64, (2, 2), 4, "split_k"),
)
# Tile, bytes of k and warps of kernels for tf32 that `wgmma` cannot read as it lies, four stages each.
WIDE: tuple[tuple[int, int, int, tuple[int, int]], ...] = (
    (16, 64, 128, (1, 4)),
    (32, 128, 64, (1, 4)),
    (64, 64, 64, (2, 2)),
    (64, 128, 64, (2, 2)),
    (128, 32, 64, (4, 1)),
)


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


def _plain(signature: GemmSignature) -> Iterator[MultistageSchedule]:
    """Exact fp32: what is contiguous along k comes float by float whatever its alignment, the rest for both."""
    for bytes_at_once in (16, 0):
        vector = 0 if signature.layout[0] == "r" else bytes_at_once, 0 if signature.layout[1] == "c" else bytes_at_once
        if bytes_at_once == 0 or any(vector):
            for m, n, warps, stages, dealing in PLAIN:
                yield multistage(signature, m, n, 64, warps, stages, vector, dealing)


def plain_together(sums: int, threads: int) -> int:
    """Blocks of exact fp32 that a multiprocessor holds at a time; `Multistage::together` in multistage_shape.h."""
    return max(1, (512 if sums <= 64 else 256) // threads)


def wide_together(schedule: MultistageSchedule) -> int:
    """The same of tf32, whose shared memory may hold fewer."""
    threads = 32 * schedule.warp_grid[0] * schedule.warp_grid[1]
    roomy = schedule.tile[0] * schedule.tile[1] // threads <= 32 and min(schedule.vector) == 4
    return max(1, (512 if roomy else 384) // threads)


def _wide(signature: GemmSignature) -> Iterator[MultistageSchedule]:
    """tf32 in a layout that `wgmma` does not read: split_k also stands for tiles."""
    for m, n, deep, warps in WIDE:
        yield multistage(signature, m, n, deep, warps, 4, 16, "split_k")
    if signature.layout[0] == "c":  # few rows of an A that lies by columns are seldom aligned
        yield multistage(signature, 16, 64, 128, (1, 4), 4, (0, 16), "split_k")


def default(signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
    """Large and small tiles, for aligned rows and for any; and few tiles with a long k."""
    if signature.dtype_a == "fp32":
        yield from _plain(signature)
        return
    small = 64 if turned(signature) or signature.dtype_a == "tf32" else 128
    wide = signature.dtype_a == "tf32" and signature.layout != "rcr"
    if wide:
        yield from _wide(signature)
    for vector in (16, 0):
        fewer = 3 if turned(signature) or (vector == 0 and signature.dtype_a != "tf32") else 4
        most = most_sums(signature, vector or 1)
        if most == 128:
            roomy = arch.scratch_bytes > 200_000
            yield multistage(signature, 128, 256, 64, (2, 4), 4 if roomy else fewer, vector)
            yield multistage(signature, 128, 128, 64, (2, 2), 4, vector)
        else:
            yield multistage(signature, 2 * most, 128, 64, (2, 4), 4, vector)
        if vector == 0 or not wide:
            yield multistage(signature, 64, 64, small, (2, 2), fewer, vector)
            yield multistage(signature, 64, 64, small, (2, 2), fewer, vector, "split_k")
    if most_sums(signature, 1) == 128 and signature.layout != "rcr":
        # Where not both are read along k, a size may be odd for one of them only.
        stages = 4 if arch.scratch_bytes > 200_000 else 3
        yield multistage(signature, 128, 256, 64, (2, 4), stages, (16, 0))
        yield multistage(signature, 128, 256, 64, (2, 4), stages, (0, 16))


def tests(signature: GemmSignature) -> Iterator[MultistageSchedule]:
    """One of everything the headers can do."""
    most, other = most_sums(signature, 16), 32 if signature.dtype_a == "fp32" else 128
    yield multistage(signature, min(128, 2 * most), 128, 64, (2, 2) if most == 128 else (2, 4), 3)
    yield multistage(signature, 64, 32, 64, (2, 1), 4, 8)
    yield multistage(signature, 64, 128, other, (2, 4), 2, 4)
    yield multistage(signature, 64, 128, 64, (2, 4), 3, 0)
    yield multistage(signature, 64, 64, 64, (2, 2), 3, 0, "split_k")
    if signature.dtype_a == "fp32":
        yield multistage(signature, 64, 64, 32, (2, 2), 3, 16, "stream_k")


def swept(far: bool, signature: GemmSignature) -> Iterator[MultistageSchedule]:
    grids = ((1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (1, 4)) if far else ((2, 2), (2, 4))
    vectors = (16, 8, 4, 0) if far else (16, 0)
    for m, n, warps in product((32, 64, 128, 256), (32, 64, 128, 256), grids):
        for deep, stages, vector in product(k_bytes(signature.dtype_a), (2, 3, 4, 5) if far else (3, 4), vectors):
            for dealing in ("tiles", "split_k"):
                yield multistage(signature, m, n, deep, warps, stages, vector, dealing)
