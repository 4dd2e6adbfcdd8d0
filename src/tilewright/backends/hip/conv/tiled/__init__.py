"""Convolution where CK Tile's headers have no product.  How its kernels compute, and rules.

wmma   RDNA 3, RDNA 4, gfx1250: fp16, bf16 and int8 by matrix instructions (gfx1250: fp32, too), 16 x 16 sums at a time
mfma   CDNA, likewise: all of gfx908, int8 of gfx90a, gradients of fp32 of gfx950
fma    any GPU, by multiply-adds: fp32 of RDNA 3 and 4

Operands, results and copies are those of the CK Tile kernels (`hip/conv/tiled/kernel.h`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.hip.conv.shared import (
    EXHAUSTIVE,
    LOOPS_MEMORY,
    MERGED,
    NUMBERS,
    SPECIALS,
    SWITCHES,
    Shape,
    TiledFamily,
    by_ck_tile,
    lines_of,
)
from tilewright.backends.hip.matrix import (
    MOST_AT_ONCE,
    instruction,
    lane_bytes,
    lane_registers,
    least_deep,
    multiplies,
)
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

MATRIX, ACCESS_BYTES, SUM_BYTES = 16, 16, 4
WAVE = {"wmma": 32, "mfma": 64, "fma": 32}  # lanes; `fma` counts in 32 on any GPU
FMA_LINES = 16  # lines of B that threads share out; each has every 16th
MAX_THREADS = 1024
_HEADERS = ["tilewright/hip/conv/tiled/kernel.h", "tilewright/hip/conv/copied.h"]
MAX_REGISTERS = 176  # of a lane, counted: the rest is addresses and what the compiler wants
# With sums in accumulation registers the compiler moves more ahead: as a share of what was counted, and beside it.
MFMA_AHEAD, MFMA_BESIDE = 1.5, 16


@dataclass(frozen=True, slots=True)
class TiledConvSchedule:
    """Tiles staged in LDS by a kernel of our own."""

    pipeline: str
    tile: Shape
    warp_grid: Shape
    vectors: Shape = (8, 8, 8)  # elements of A and B that are read at once, and of the result that are stored
    split_k: int = 1
    special: str = "any"  # what else it is for: see `SPECIALS`
    merged: int = 1

    pipelines: ClassVar[tuple[str, ...]] = ("wmma", "mfma", "fma")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "special": SPECIALS,
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": SHAPES["tile"],
        "warp_grid": SHAPES["warp_grid"],
        "vectors": ("a", "b", "c"),
    }

    def label(self) -> str:
        parts = [self.pipeline, *("x".join(map(str, shape)) for shape in (self.tile, self.warp_grid))]
        parts.append("vectors" + "x".join(map(str, self.vectors)))
        if self.split_k > 1:
            parts.append(f"split_k{self.split_k}")
        if self.special != "any":
            parts.append(self.special)
        if self.merged > 1:
            parts.append(f"merged{self.merged}")
        return "_".join(parts)


def best_pipeline(signature: ConvSignature, arch: Arch) -> str:
    """By the arch's matrix instructions where there is one for the type, else by multiply-adds."""
    if not multiplies(signature.dtype, arch):
        return "fma"
    return "mfma" if "mfma" in arch.features else "wmma"


def threads(schedule: TiledConvSchedule) -> int:
    return WAVE[schedule.pipeline] * prod(schedule.warp_grid)


def lds_bytes(signature: ConvSignature, schedule: TiledConvSchedule) -> int:
    """What a block stages, or the sums that leave at once, in the same place."""
    (m, n, k), size = schedule.tile, DTYPES[signature.dtype].bytes
    band = threads(schedule) // FMA_LINES if schedule.pipeline == "fma" else schedule.warp_grid[0] * MATRIX
    return max((m + n) * (k * size + ACCESS_BYTES), band * (n + 4) * SUM_BYTES)


def registers(signature: ConvSignature, schedule: TiledConvSchedule, arch: Arch) -> int:
    """Of a lane: sums, what it holds of the next stage and of this one, and where it reads."""
    (m, n, k), size, lanes = schedule.tile, DTYPES[signature.dtype].bytes, threads(schedule)
    held = (m + n) * k * size // lanes // 4
    if schedule.pipeline == "wmma":
        multiplied = 8 * (n // (MATRIX * schedule.warp_grid[1]) + 1)
    elif schedule.pipeline == "mfma":
        grid_m, grid_n, _ = schedule.warp_grid
        fragments = (m // (MATRIX * grid_m) + n // (MATRIX * grid_n)) * lane_bytes(signature.dtype, arch, k) // 4
        steps = k * size // (lane_bytes(signature.dtype, arch, k) * instruction(signature.dtype, arch).groups)
        multiplied = fragments * (steps if fragments * steps <= MOST_AT_ONCE else 1)
    else:
        multiplied = 5 * (n // FMA_LINES + 1)
    places = sum(
        -(-lines * k // lanes // width) * each
        for lines, width, each in zip((m, n), schedule.vectors, (1 + signature.spatial, 2), strict=False)
    )
    return m * n // lanes + held + multiplied + places


def registers_and_room(signature: ConvSignature, schedule: TiledConvSchedule, arch: Arch) -> tuple[int, int]:
    """What a lane wants, and has."""
    counted = registers(signature, schedule, arch)
    if schedule.pipeline != "mfma":
        return counted, MAX_REGISTERS
    return int(counted * MFMA_AHEAD) + MFMA_BESIDE, lane_registers(prod(schedule.warp_grid), arch)


def _rules(signature: ConvSignature, schedule: TiledConvSchedule, arch: Arch) -> Iterator[Violation]:
    best = best_pipeline(signature, arch)
    if schedule.pipeline not in (best, "fma"):
        message = f"{arch.name} with {signature.dtype}: the kernels have no {schedule.pipeline} for it"
        yield Violation("amd-wmma" if schedule.pipeline == "wmma" else "amd-mfma", message, f"use {best}")
        return
    broken = list(_tile(signature, schedule, arch))
    yield from broken
    if broken:
        return
    if (bytes_ := lds_bytes(signature, schedule)) > arch.scratch_bytes:
        yield Violation("amd-lds", f"{bytes_} bytes of LDS, and there are {arch.scratch_bytes}", "use a smaller tile")
    wanted, most = registers_and_room(signature, schedule, arch)
    if wanted > most:
        message = f"a lane wants {wanted} registers; over {most} it spills"
        yield Violation("amd-registers", message, "use a smaller tile, more waves or wider vectors")


def _power(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _tile(signature: ConvSignature, schedule: TiledConvSchedule, arch: Arch) -> Iterator[Violation]:
    (m, n, k), (grid_m, grid_n, grid_k), lanes = schedule.tile, schedule.warp_grid, threads(schedule)
    size = DTYPES[signature.dtype].bytes
    if grid_k != 1 or not _power(lanes) or lanes > MAX_THREADS:
        message = f"warp grid {grid_m}x{grid_n}x{grid_k}"
        most_waves = MAX_THREADS // WAVE[schedule.pipeline]
        yield Violation("amd-warps", message, f"use 2^n waves along m and n, up to {most_waves}, and 1 along k")
        return
    pieces = k * size // ACCESS_BYTES
    fma = schedule.pipeline == "fma"
    deep = 1 if fma else least_deep(signature.dtype, arch)  # of an instruction
    down, across = (lanes // FMA_LINES, FMA_LINES) if fma else (grid_m * MATRIX, grid_n * MATRIX)
    if m % down or n % across or k * size % ACCESS_BYTES or not _power(pieces) or k % deep:
        message = f"tile {m}x{n}x{k} is not whole for {down}x{across} lines, or no 2^n times 16 bytes deep"
        yield Violation("amd-tile-size", message, f"use multiples of {down} and {across}, and k of 16, 32 or 64")
        return
    widest = ACCESS_BYTES // size
    if any(not _power(width) or width > widest for width in schedule.vectors[:2]):
        message = f"{schedule.vectors[:2]} elements are read at a time"
        yield Violation("amd-vector", message, f"use powers of two up to {widest}")
        return
    stored = ACCESS_BYTES // DTYPES[signature.dtype_out].bytes
    if not _power(schedule.vectors[2]) or schedule.vectors[2] > stored:
        message = f"{schedule.vectors[2]} results leave at a time"
        yield Violation("amd-vector", message, f"use a power of two up to {stored}")
    a_along_k, b_along_k = signature.variant != "backward_weight", signature.variant == "forward"
    a, b, _ = schedule.vectors
    for what, lines, width, along_k in (("A", m, a, a_along_k), ("B", n, b, b_along_k)):
        rows, row = (lines, k) if along_k else (k, lines)
        if row % width or lanes % (row // width) or rows % (lanes // (row // width)):
            message = f"{lanes} threads do not share out {what}, {rows} rows of {row}, {width} elements at a time"
            yield Violation("amd-tile-vector", message, "use another tile, warp grid or vectors")


# Tile with k for two-byte elements, warp grid of waves of 32 lanes.
_PIXELS = (
    ((128, 128, 32), (4, 2, 1)),
    ((128, 64, 32), (4, 2, 1)),
    ((64, 64, 32), (2, 2, 1)),
    ((128, 32, 32), (4, 1, 1)),
)
_WEIGHTS = (((128, 128, 32), (4, 2, 1)), ((64, 64, 32), (2, 2, 1)))
_SPLITS = (1, 4, 16, 64)


def _schedule(signature: ConvSignature, tile: Shape, grid: Shape, vectors: Shape) -> TiledConvSchedule:
    deep = tile[2] * 2 // DTYPES[signature.dtype].bytes
    return TiledConvSchedule("wmma", (tile[0], tile[1], deep), grid, vectors)


def _computed_by(schedule: TiledConvSchedule, pipeline: str) -> TiledConvSchedule:
    """The same tile by as many threads: waves of 64 lanes are half as many."""
    grid_m, grid_n, _ = schedule.warp_grid
    if pipeline == "mfma":
        grid_m, grid_n = (grid_m // 2, grid_n) if grid_m > 1 else (1, max(1, grid_n // 2))
    return replace(schedule, pipeline=pipeline, warp_grid=(grid_m, grid_n, 1))


def _vectors(signature: ConvSignature) -> tuple[int, int]:
    """The widest of operands, and of the result."""
    return ACCESS_BYTES // DTYPES[signature.dtype].bytes, ACCESS_BYTES // DTYPES[signature.dtype_out].bytes


def _default(signature: ConvSignature) -> Iterator[TiledConvSchedule]:
    widest, stored = _vectors(signature)
    weight = signature.variant == "backward_weight"
    rows = _WEIGHTS if weight else _PIXELS
    for tile, grid in rows:
        schedule = _schedule(signature, tile, grid, (widest, widest, stored))
        for split in _SPLITS if weight else (1,):
            yield replace(schedule, split_k=split)
            yield replace(schedule, split_k=split, special="copied")
    middle = _schedule(signature, *rows[1], (widest, widest, stored))
    yield replace(middle, special="pointwise", split_k=16 if weight else 1)
    for narrow in dict.fromkeys((max(1, widest // 4), 1)):
        yield replace(middle, vectors=(narrow, narrow, stored), split_k=16 if weight else 1)
    if not weight:
        for merged, channels in MERGED:
            schedule = _schedule(signature, *_PIXELS[3], (widest, min(widest, channels), stored))
            yield replace(schedule, merged=merged)
            yield replace(schedule, merged=merged, special="copied")


def _swept(pool: str, signature: ConvSignature) -> Iterator[TiledConvSchedule]:
    if pool == EXHAUSTIVE:
        yield from _default(signature)
        yield from _swept("full", signature)
    (widest, stored), weight = _vectors(signature), signature.variant == "backward_weight"
    far = pool == EXHAUSTIVE
    sides, grids = ((32, 64, 128, 256), ((1, 2, 1), (2, 1, 1), (2, 2, 1), (4, 1, 1), (4, 2, 1), (2, 4, 1)))
    vectors = ((widest, widest, stored),) if far or pool == "profiler" else (
        (widest, widest, stored), (widest, widest, 1), (max(1, widest // 2), max(1, widest // 2), stored),
        (1, widest, stored), (1, 1, stored),
    )  # fmt: skip
    for m, n, k, grid in product(sides, sides, (32, 64) if far else (32,), grids):
        for vector, split in product(vectors, ((1, 4, 16, 64) if far else (1, 16)) if weight else (1,)):
            schedule = replace(_schedule(signature, (m, n, k), grid, vector), split_k=split)
            yield schedule
            if vector == vectors[0]:
                yield replace(schedule, special="pointwise")
                yield replace(schedule, special="copied")
                for merged, wide in () if weight or pool == "profiler" else MERGED[1:]:
                    several = replace(schedule, merged=merged, vectors=(widest, min(widest, wide), stored))
                    yield several
                    yield replace(several, special="copied")


class Tiled(TiledFamily):
    name = "tiled"
    schedules = (TiledConvSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[TiledConvSchedule]:
        if by_ck_tile(signature, arch):
            return
        pipeline = best_pipeline(signature, arch)
        schedules = _default(signature) if pool == "default" else _swept(pool, signature)
        # Of waves of 64 lanes two grids may become the same.
        yield from dict.fromkeys(_computed_by(schedule, pipeline) for schedule in schedules)

    def violations(self, signature: ConvSignature, schedule: TiledConvSchedule, arch: Arch) -> Iterator[Violation]:
        yield from super().violations(signature, schedule, arch)
        yield from _rules(signature, schedule, arch)

    def loads(self, signature: ConvSignature, schedule: TiledConvSchedule) -> tuple[int, int]:
        return schedule.vectors[0], schedule.vectors[1]

    def threads(self, signature: ConvSignature, schedule: TiledConvSchedule) -> int:
        return threads(schedule)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        pipeline = spec.schedule.pipeline
        return {**super().numbers(spec), "wmma": int(pipeline == "wmma"), "mfma": int(pipeline == "mfma")}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        h, s = spec.schedule, spec.signature
        numbers: dict[str, Any] = {f"tile_{axis}": h.tile[i] for i, axis in enumerate("mnk")}
        numbers |= {f"warp_grid_{axis}": h.warp_grid[i] for i, axis in enumerate("mn")}
        numbers |= {
            "split_k": h.split_k,
            "merged": h.merged,
            "threads": threads(h),
            "stages": 1,
            "least_loops": 1,
            "read_a": h.vectors[0],
            "read_b": h.vectors[1],
            "width_c": h.vectors[2],
            "lds_bytes": lds_bytes(s, h),
        }
        switches = {"pointwise": h.special == "pointwise", "matrix": h.pipeline != "fma"}
        return {
            "family": self.name, "kernel": self.kernel(h), "shared": False,
            "numbers": lines_of(numbers, NUMBERS), "switches": lines_of(switches, SWITCHES),
            "limits": self.numbers(spec), "headers": _HEADERS, "includes": [], "element": f"tw::{s.dtype}",
            "sums": True, "tails": "one",
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions, where there are such."""
        pipeline = spec.schedule.pipeline
        return Promises(() if pipeline == "fma" else (f"v_{pipeline}_",))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return LOOPS_MEMORY


FAMILY = Tiled()
