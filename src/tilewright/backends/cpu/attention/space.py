"""Attention on CPUs: what is legal, and the schedules worth proposing.

tiled    many rows: queries in lanes, blocks of keys, a running softmax
decode   few rows: the cache is read once, in its own order; its keys are shared among threads
loops    the floor: any size, stride, element type and feature

The first two take any head size, stride, length, window, bias, mask and sink, and pages but vectorised ones; dropout
and scales are left to the loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cpu.attention.schedules import CpuDecodeSchedule, CpuSchedule, CpuTiledSchedule
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import Violation

SCHEDULES: tuple[type[AttentionSchedule], ...] = (CpuTiledSchedule, CpuDecodeSchedule, LoopsSchedule)

MOST_ROWS = 64  # of the query heads that share a head of keys, in a decode kernel
MOST_PASS = 8  # rows whose sums of values are in registers at once
BLOCK_BYTES = 1 << 18  # scores of a block: beyond, they leave the second-level cache


def lanes(arch: Arch) -> int:
    """32-bit accumulators in one vector."""
    return arch.vector_bytes // 4


def dot_step(signature: AttentionSignature, arch: Arch) -> int:
    """Elements one multiply-accumulate instruction eats in a lane."""
    return 2 if signature.dtype_q == signature.dtype_kv == "bf16" and "bf16" in arch.features else 1


def signature_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from signature_violations(signature)
    if "fp8_e4m3fnuz" in (signature.dtype_q, signature.dtype_kv):
        yield Violation("dtype-input", "CPUs have no kernels for fp8_e4m3fnuz", "use fp8_e4m3")


def _signature(signature: AttentionSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _features(signature: AttentionSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, LoopsSchedule):
        return
    lacks = [name for name, has in (("dropout", signature.dropout), ("scales", signature.scales != "none"),
                                    ("vectorised pages", signature.pages == "vectorised")) if has]  # fmt: skip
    if lacks:
        yield Violation("cpu-feature", f"pipeline {schedule.pipeline} has no {' and no '.join(lacks)}", "use loops")


def _registers(signature: AttentionSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuTiledSchedule):
        return
    width, (rows, deep) = lanes(arch), schedule.warp_tile
    if rows % width:
        below = rows // width * width
        message = f"warp_tile_m {rows} and the {width} lanes of a {arch.name} vector"
        yield Violation("cpu-vector", message, f"use {below or width} or {below + width}")
        return
    vectors = rows // width
    spare = 1 if "fma" in arch.features else 2  # what is broadcast; and a product, where it is not added at once
    need = deep * vectors + vectors + spare
    if need > arch.vector_registers:
        most = (arch.vector_registers - vectors - spare) // vectors
        yield Violation(
            "cpu-registers",
            f"warp tile {rows}x{deep} needs {need} vector registers, {arch.name} has {arch.vector_registers}",
            f"use at most {most} for warp_tile_n" if most > 0 else f"use fewer than {rows} for warp_tile_m",
        )


def _tiles(signature: AttentionSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuTiledSchedule):
        return
    for name, size, block in zip("mn", schedule.tile, schedule.warp_tile, strict=True):
        if size % block:
            message = f"tile_{name} {size} is not a multiple of warp_tile_{name} {block}"
            yield Violation("cpu-tile", message, f"use {max(1, size // block) * block}")
    if schedule.tile[1] % 2:
        yield Violation("cpu-pairs", f"tile_n {schedule.tile[1]} keys are no pairs", "use an even number")
    if schedule.tile[1] * schedule.warp_tile[0] * 4 > BLOCK_BYTES:
        message = f"{schedule.tile[1]} keys of {schedule.warp_tile[0]} rows leave the cache"
        yield Violation("cpu-cache-block", message, f"use at most {BLOCK_BYTES // 4 // schedule.warp_tile[0]} keys")


def _passes(signature: AttentionSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuDecodeSchedule):
        return
    rows, keys = schedule.tile
    most = min(MOST_PASS, lanes(arch))
    if rows > most or rows & (rows - 1):
        message = f"passes of {rows} rows on {arch.name}"
        yield Violation("cpu-pass", message, f"use a power of two up to {most}")
    if keys % lanes(arch):
        message = f"blocks of {keys} keys and the {lanes(arch)} lanes of a {arch.name} vector"
        yield Violation("cpu-vector", message, f"use {max(1, keys // lanes(arch)) * lanes(arch)}")
    if keys * MOST_ROWS * 4 > BLOCK_BYTES:
        message = f"blocks of {keys} keys leave the cache"
        yield Violation("cpu-cache-block", message, f"use at most {BLOCK_BYTES // 4 // MOST_ROWS}")


RULES = (_signature, _features, _registers, _tiles, _passes)


def limits(schedule: CpuSchedule, problem: AttentionProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    rows = problem.seqlen_q * (problem.heads_q // max(1, problem.heads_kv))
    if isinstance(schedule, CpuDecodeSchedule) and rows > MOST_ROWS:
        yield Violation("cpu-rows", f"{rows} rows share a head of keys, over {MOST_ROWS}", "use tiled")


def generic_schedule(signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()


# Vectors of rows, and keys at once, of the register blocks worth having, best first: with 32 registers, with 16, and
# where products and sums are apart.
_WIDE, _NARROW, _PLAIN = ((3, 8), (2, 8), (2, 12), (1, 8)), ((3, 4), (2, 4), (1, 8)), ((2, 4), (1, 8))
_DEFAULT_KEYS = 128
_SET = 8  # tiles of rows that share what is packed


def _tiled(arch: Arch, vectors: int, deep: int, keys: int, tiles: int = _SET) -> CpuTiledSchedule:
    rows = vectors * lanes(arch)
    return CpuTiledSchedule((rows * tiles, keys // deep * deep), (rows, deep))


def schedules(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """What the pool proposes for one signature; some of it may be illegal.

    Asked for `default`, `full` and `profiler`; the other pools are rules over these (`pools.py`).
    """
    most = min(MOST_PASS, lanes(arch))
    blocks = _WIDE if arch.vector_registers >= 32 else _NARROW if "fma" in arch.features else _PLAIN
    if signature.family == "forward" and pool == "default":
        yield _tiled(arch, *blocks[0], _DEFAULT_KEYS)
        yield CpuDecodeSchedule((most, 64))
    elif signature.family == "forward":
        far = pool == "profiler"
        for vectors, deep in blocks:
            for keys in (32, 64, 96, 128, 192, 256) if far else (64, 128, 256):
                for tiles in (2, 4, 8, 16) if far else (8,):
                    yield _tiled(arch, vectors, deep, keys, tiles)
        for rows in [one for one in (1, 2, 4, 8) if one <= most] if far else (most // 2, most):
            for keys in (16, 32, 64, 128, 256) if far else (32, 64, 128):
                yield CpuDecodeSchedule((rows, keys))
    yield LoopsSchedule()
