"""GEMM on the CPU family: what is legal, and the schedules worth proposing.

tile is the cache block, warp tile the register block (rows, columns, k elements a dot step eats).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm.preselected import SETS
from tilewright.backends.cpu.gemm.schedules import (
    SCHEDULES,
    CpuDirectSchedule,
    CpuLoopsSchedule,
    CpuPackedSchedule,
    CpuSchedule,
    CpuStreamSchedule,
)
from tilewright.backends.cpu.vectors import block_rules, dot_step_of, lanes
from tilewright.ops.base import Violation
from tilewright.ops.gemm.dtype_rules import dtype_rules
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

__all__ = [
    "RULES",
    "SCHEDULES",
    "SETS",
    "copied_sizes",
    "generic_schedule",
    "grains",
    "limits",
    "pack_format",
    "schedules",
    "signature_rules",
]

PIPELINES = ("packed", "direct", "gemv", "stream", "preshuffle", "loops")
STREAMS = CpuStreamSchedule.pipelines  # that read one operand as a handful of vectors
FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")
GEMV_MAX = 4  # rows (or columns) of a gemv kernel
STREAM_MAX = 256  # of a stream kernel
MAX_SPLIT_K = 64
MAX_UNROLL = 8
PACK_LIMIT = 8 << 20  # bytes of one packed block: what an L2 of today may hold


def dot_step(signature: GemmSignature, arch: Arch) -> int:
    """k elements one multiply-accumulate instruction eats: the warp tile's k."""
    return dot_step_of(arch, signature.dtype_a, signature.dtype_b)


def dot_bytes(signature: GemmSignature, arch: Arch) -> int:
    """Bytes of one packed element: int8 stays int8 for VNNI, is widened otherwise; floats become fp32."""
    if signature.dtype_a == "int8":
        return {4: 1, 2: 2, 1: 4}[dot_step(signature, arch)]
    return 2 if dot_step(signature, arch) == 2 else 4


def signature_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which dtypes go together."""
    yield from dtype_rules(signature, FLOATS, FLOAT_OUTPUTS, INT_OUTPUTS)


def _signature(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _pipeline(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if (signature.variant == "preshuffle") != (schedule.pipeline == "preshuffle"):
        yield Violation(
            "cpu-preshuffle",
            f"variant {signature.variant} with pipeline {schedule.pipeline}",
            "variant and pipeline preshuffle go together",
        )


def _registers(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, (CpuPackedSchedule, CpuDirectSchedule)):
        return
    yield from block_rules(schedule.warp_tile, dot_step(signature, arch), signature.dtype_a, arch)


def _packed_rules(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuPackedSchedule):
        return
    if schedule.unroll > MAX_UNROLL:
        yield Violation("cpu-unroll", f"unroll {schedule.unroll} is over {MAX_UNROLL}", f"use 1 to {MAX_UNROLL}")
    if schedule.split_k > MAX_SPLIT_K:
        yield Violation("cpu-split-k", f"split_k {schedule.split_k} is over {MAX_SPLIT_K}", f"use 1 to {MAX_SPLIT_K}")
    m, n, k = schedule.tile
    size = dot_bytes(signature, arch)
    for what, count in (("A", m * k), ("B", n * k)):
        if count * size > PACK_LIMIT:
            yield Violation(
                "cpu-cache-block",
                f"the packed block of {what} takes {count * size} bytes, over {PACK_LIMIT}",
                f"use tile_k {PACK_LIMIT // size // (count // k)} or less",
            )


def _streams(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuStreamSchedule):
        return
    limit = GEMV_MAX if schedule.pipeline == "gemv" else STREAM_MAX
    if schedule.tile[0] > limit:
        yield Violation(
            "cpu-stream-rows",
            f"tile_m {schedule.tile[0]}: a {schedule.pipeline} kernel takes at most {limit} rows (or columns)",
            f"use tile_m {limit} or less",
        )
    width, step = lanes(arch), dot_step(signature, arch)
    if schedule.warp_tile != (1, width, step):
        yield Violation(
            "cpu-stream-warp-tile",
            f"warp tile {schedule.warp_tile}, but a {schedule.pipeline} kernel works on single vectors",
            f"use 1x{width}x{step}",
        )
    if schedule.tile[2] % (width * step):
        yield Violation(
            "cpu-stream-k",
            f"tile_k {schedule.tile[2]} is not a multiple of {width} words of {step}",
            f"use {-(-schedule.tile[2] // (width * step)) * width * step}",
        )


def _direct(signature: GemmSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuDirectSchedule):
        return
    if signature.layout[1] != "r":
        yield Violation("cpu-direct-layout", "the direct pipeline reads B by rows", "use a row-major B, or packed")
    if signature.dtype_a == "int8" and "vnni" in arch.features:
        yield Violation("cpu-direct-int8", "VNNI needs packed column totals, which direct has not", "use packed")


RULES = (_signature, _pipeline, _registers, _packed_rules, _streams, _direct)


def limits(schedule: CpuSchedule, problem: GemmProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for."""
    if isinstance(schedule, CpuStreamSchedule) and min(problem.m, problem.n) > schedule.tile[0]:
        yield Violation(
            "cpu-stream-size",
            f"m = {problem.m} and n = {problem.n} are both over the {schedule.tile[0]} vectors of this kernel",
            "use a packed or direct kernel",
        )


def grains(schedule: CpuSchedule) -> Shape:
    """What each size must be a multiple of: 1 where the kernel has edge code."""
    if not isinstance(schedule, CpuPackedSchedule):
        return (1, 1, 1)
    m, n, k = (1 if edge else step for edge, step in zip(schedule.pad, schedule.warp_tile, strict=True))
    return m, n, k


def copied_sizes(schedule: CpuSchedule, problem: GemmProblem) -> Shape:
    """m, n and k of copies in which the kernel serves the problem; host kernels read any stride, and any k."""
    return problem.m, problem.n, problem.k


def pack_format(schedule: CpuSchedule) -> tuple[object, ...]:
    """A packed B is panels of warp_tile_n columns, k running in steps of warp_tile_k."""
    return schedule.warp_tile[1:]


def generic_schedule(signature: GemmSignature, arch: Arch) -> CpuSchedule:
    """The floor for a signature: plain loops, or the simplest kernel that reads a packed B."""
    if signature.variant == "preshuffle":
        return next(schedules("tiny", signature, arch))
    return CpuLoopsSchedule()


# Rows and vectors of the register blocks worth having on an arch, best first, by vector registers.
_BLOCKS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((14, 2), (8, 3), (12, 2), (6, 4), (9, 3), (28, 1)),
    16: ((6, 2), (4, 2), (3, 3), (12, 1)),
}


def _packed(
    pipeline: str,
    signature: GemmSignature,
    arch: Arch,
    rows: int,
    vectors: int,
    blocks: Shape,
    unroll: int = 1,
    prefetch: int = 0,
    split_k: int = 1,
) -> CpuPackedSchedule:
    """A packed schedule whose cache block is `blocks` register blocks by m and n, and words by k."""
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuPackedSchedule(
        pipeline,
        (rows * blocks[0], vectors * width * blocks[1], blocks[2] * step),
        (rows, vectors * width, step),
        unroll=unroll,
        prefetch=prefetch,
        split_k=split_k,
    )


def _direct_one(signature: GemmSignature, arch: Arch, rows: int, vectors: int) -> CpuDirectSchedule:
    return CpuDirectSchedule((rows, vectors * lanes(arch), dot_step(signature, arch)))


def _stream_one(
    pipeline: str, signature: GemmSignature, arch: Arch, most: int, words: int, ahead: int
) -> CpuStreamSchedule:
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuStreamSchedule(pipeline, (most, 2048, words * step), (1, width, step), prefetch=ahead)


def _default(signature: GemmSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """One kernel for each kind of problem: large, small, few rows, one row, long k."""
    wide = arch.vector_registers >= 32
    (rows, vectors), (other_rows, other_vectors) = _BLOCKS[arch.vector_registers][:2]
    packed = "preshuffle" if signature.variant == "preshuffle" else "packed"
    deep = 384 if wide else 256
    yield _packed(packed, signature, arch, rows, vectors, (12, 48 if wide else 32, deep), unroll=2, prefetch=8 * wide)
    if wide:
        yield _packed(packed, signature, arch, other_rows, other_vectors, (32, 32, 384), unroll=2, prefetch=8)
    else:
        yield _packed(packed, signature, arch, other_rows, other_vectors, (12, 16, 256), unroll=2)
    if packed == "preshuffle":
        return
    yield _stream_one("stream", signature, arch, STREAM_MAX, 512, 8)
    yield _stream_one("gemv", signature, arch, GEMV_MAX, 512, 8)
    yield _direct_one(signature, arch, other_rows, other_vectors)
    yield _direct_one(signature, arch, rows, vectors)
    yield _packed(packed, signature, arch, rows, vectors, (12, 16, deep), unroll=2, split_k=4)
    yield _packed(packed, signature, arch, rows, vectors, (12, 16, deep), unroll=2, split_k=16)


def _swept(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """Every axis turned; `profiler` turns them further than `full`."""
    blocks = _BLOCKS[arch.vector_registers]
    packed = "preshuffle" if signature.variant == "preshuffle" else "packed"
    far = pool == "profiler"
    for rows, vectors in blocks:
        for words in (128, 192, 256, 320, 384, 448, 512, 768) if far else (256, 384, 512):
            for m_blocks in (4, 8, 12, 16, 24, 32) if far else (8, 12, 24):
                for n_blocks in (4, 8, 16, 32, 48) if far else (8, 16, 48):
                    for unroll in (1, 2, 4):
                        for prefetch in (0, 8):
                            for split_k in (1, 2, 4, 8, 16) if far else (1, 4):
                                yield _packed(
                                    packed, signature, arch, rows, vectors, (m_blocks, n_blocks, words),
                                    unroll=unroll, prefetch=prefetch, split_k=split_k,
                                )  # fmt: skip
    if packed == "preshuffle":
        return
    for rows, vectors in blocks:
        yield _direct_one(signature, arch, rows, vectors)
    for words in (256, 512, 768, 1024):
        for ahead in (0, 4, 8, 16):
            yield _stream_one("gemv", signature, arch, GEMV_MAX, words, ahead)
            for most in (16, 64, STREAM_MAX):
                yield _stream_one("stream", signature, arch, most, words, ahead)


def schedules(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """What the pool proposes for one signature; some of it may be illegal."""
    if pool in ("full", "profiler"):
        yield from _swept(pool, signature, arch)
        return
    for number, schedule in enumerate(_default(signature, arch)):
        if pool == "tiny" and number > 0:
            return
        yield schedule
    if pool == "tests" and signature.variant != "preshuffle":
        # Without edge code, and with small tiles: what default does not exercise.
        rows, vectors = _BLOCKS[arch.vector_registers][1]
        small = _packed("packed", signature, arch, rows, vectors, (2, 2, 64))
        yield small
        yield replace(small, pad=(False, False, False))
