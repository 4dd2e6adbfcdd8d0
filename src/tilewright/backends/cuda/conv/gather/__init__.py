"""gather: an implicit GEMM whose operands cp.async gathers piece by piece, of any strides.

By GEMM's multistage block; `gather/memory.h` says what it takes of shared memory.  `vectors` say how many elements of A
and B are copied at a time, 16, 8 or 4 bytes, whose operand must be aligned so; a vector of one element takes any
operand.  `gather` reads contiguous channels, `gather_planes` contiguous pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.conv.resources import Pair, Shape
from tilewright.backends.cuda.conv.shared import MEASURED, CudaConvFamily, Fields, flag, sizes, tile_numbers
from tilewright.backends.cuda.gemm.multistage.shape import MEMORY as MULTISTAGE
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

MOST_SUMS = 128  # of a thread; of elements that come through registers there are at most HELD beside them
HELD, HELD_SUMS = 64, 64
MEMORY = Arithmetic("tilewright.backends.cuda.conv.gather", "tilewright/cuda/conv/gather/memory.h", MULTISTAGE)
UNIT_ROWS = MEMORY("multistage_unit_rows")
STAGES = range(3, MEMORY("gather_ahead") + 1)


@dataclass(frozen=True, slots=True)
class GatherSchedule:
    """cp.async gathers pieces of both operands, and mma.sync multiplies them; exact fp32 by multiply-adds."""

    pipeline: str
    tile: Shape
    warp_grid: Shape
    stages: int
    vectors: Pair = (1, 1)  # elements of A and B that are copied at a time

    pipelines: ClassVar[tuple[str, ...]] = ("gather", "gather_planes")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b")}

    @property
    def planes(self) -> bool:
        return self.pipeline == "gather_planes"

    @property
    def warp_tile(self) -> Shape:
        """What a warp has of a tile."""
        return (self.tile[0] // max(1, self.warp_grid[0]), self.tile[1] // max(1, self.warp_grid[1]), self.tile[2])

    @property
    def threads(self) -> int:
        return 32 * self.warp_grid[0] * self.warp_grid[1]

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.tile[0] * self.tile[1] // self.threads

    def label(self) -> str:
        warps, vectors = sizes(self.warp_grid[:2]), sizes(self.vectors)
        return f"{self.pipeline}_{sizes(self.tile)}_warps{warps}_stages{self.stages}_vectors{vectors}"


@dataclass(frozen=True, slots=True)
class Side:
    """How an operand is loaded; `Gathered` in cuda/conv/gather/shape.h."""

    size: int  # bytes of an element
    lines: int
    deep: int
    along_k: bool  # neighbouring threads read along k, else along lines
    vector: int

    @property
    def plain(self) -> bool:
        return self.size == 4

    @property
    def _came(self) -> tuple[int, ...]:
        return self.size, self.along_k, self.vector * self.size

    @property
    def single(self) -> bool:
        """Whether it is loaded element by element, which no copy can."""
        return bool(MEMORY("gather_single", self.vector * self.size))

    @property
    def held(self) -> bool:
        """Whether it is loaded through registers: element by element, or in vectors of floats transposed there."""
        return bool(MEMORY("gather_held", self.plain, self.along_k, self.vector * self.size))

    @property
    def grain(self) -> int:
        return MEMORY("gather_grain", *self._came)

    @property
    def across(self) -> int:
        """Threads side by side."""
        bytes_at_once = self.vector * self.size
        return MEMORY("gather_across", self.size, self.lines, self.deep, self.plain, self.along_k, bytes_at_once)

    @property
    def stage_bytes(self) -> int:
        return MEMORY("multistage_tile_bytes", self.size, self.lines, self.deep, self.plain, self.along_k)


def sides(signature: ConvSignature, schedule: GatherSchedule) -> tuple[Side, Side]:
    """A and B.  Contiguous channels run along k where pixels are lines, along lines where pixels are k."""
    along = along_k(signature.variant, schedule.planes)
    (m, n, k), size = schedule.tile, DTYPES[signature.dtype].bytes
    return Side(size, m, k, along[0], schedule.vectors[0]), Side(size, n, k, along[1], schedule.vectors[1])


def ctas_per_sm(spec: KernelSpec) -> int:
    """Blocks of one multiprocessor, at least: the compiler keeps to the registers that leaves.

    What is copied through registers needs some.  On sm_90 as many as were fastest there; elsewhere none spills.
    """
    h: GatherSchedule = spec.schedule
    threads = 256
    if h.sums <= 32:
        single = any(side.single for side in sides(spec.signature, h))
        most = (384, 512) if arch_by_name(spec.arch).capability == MEASURED else (256, 384)
        threads = most[0] if single else most[1]
    return max(1, threads // h.threads)


def along_k(variant: str, planes: bool) -> tuple[bool, bool]:
    """Whether neighbouring threads read A and B along k; `planes`: they read pixels side by side, not channels."""
    if variant == "backward_weight":
        return planes, planes
    return not planes, variant == "forward"


def unit_columns(dtype: str) -> int:
    """Of a warp's part."""
    return MEMORY("multistage_unit_columns", dtype == "fp32")


def shared_bytes(signature: ConvSignature, schedule: GatherSchedule) -> int:
    """Stages, or the staging buffer in their place; what each k says; the addresses of rows and columns of results."""
    (m, n, k), both = schedule.tile, sides(signature, schedule)
    ring = schedule.stages * sum(side.stage_bytes for side in both)
    table = MEMORY("multistage_shared_bytes", ring, schedule.warp_grid[0], n)
    lines = table + MEMORY("gather_table_bytes", k, min(side.grain for side in both))
    return MEMORY("gather_shared_bytes", lines + MEMORY("gather_line_bytes", m, n), m, n, signature.num_d)


# Tile and warps.
Tiles = tuple[tuple[int, int, Pair], ...]
_PIXELS: Tiles = ((128, 128, (2, 4)), (128, 64, (4, 2)), (64, 64, (2, 2)), (128, 32, (4, 1)), (128, 16, (4, 1)))
_BYTES: Tiles = (*_PIXELS[:3], (128, 32, (8, 1)), (128, 16, (8, 1)))  # as many registers hold fewer in flight
_WEIGHTS: Tiles = ((128, 128, (2, 4)), (64, 128, (2, 4)), (64, 64, (2, 2)), (16, 64, (1, 4)))
_PLAIN_PIXELS: Tiles = ((128, 128, (2, 2)), (128, 64, (4, 1)), (64, 64, (2, 2)), (128, 32, (4, 1)))
_PLAIN_WEIGHTS: Tiles = ((128, 128, (2, 2)), (64, 128, (2, 2)), (64, 64, (2, 2)), (32, 64, (2, 2)))


def _vectors(signature: ConvSignature) -> Iterator[tuple[str, Pair]]:
    """Pipelines and vectors: both operands aligned, one of them, none; channels that are whole words only."""
    wide = 16 // DTYPES[signature.dtype].bytes
    if signature.dtype == "fp32":
        pairs: tuple[Pair, ...] = ((wide, wide), (wide, 1), (1, wide), (1, 1))
        if signature.variant == "forward":  # both have the channels of x
            pairs = pairs[::3]
        yield from (("gather", pair) for pair in pairs)
    else:
        pairs = ((wide, wide), (wide, 1), (1, wide), (wide // 4, wide // 4), (1, 1))
        yield from (("gather", pair) for pair in pairs)
    yield "gather_planes", (1, 1)


def gathers(signature: ConvSignature, arch: Arch) -> Iterator[GatherSchedule]:
    """A few tiles, each for the alignments that there are."""
    weight, plain = signature.variant == "backward_weight", signature.dtype == "fp32"
    pixels = _PLAIN_PIXELS if plain else _BYTES if signature.dtype == "int8" else _PIXELS
    tiles = pixels if not weight else _PLAIN_WEIGHTS if plain else _WEIGHTS
    for pipeline, vectors in _vectors(signature):
        for m, n, warps in tiles:
            yield GatherSchedule(pipeline, (m, n, 64 // DTYPES[signature.dtype].bytes), (*warps, 1), 4, vectors)


def _violations(signature: ConvSignature, schedule: GatherSchedule, arch: Arch) -> Iterator[Violation]:
    """What tile, warps, stages and vectors must be."""
    (m, n, k), (along_m, along_n, along_k) = schedule.tile, schedule.warp_grid
    size, columns = DTYPES[signature.dtype].bytes, unit_columns(signature.dtype)
    if along_k != 1 or along_m * along_n > 16:
        message = f"warps {sizes(schedule.warp_grid)}"
        yield Violation("nv-warps", message, "use warps along m and n only, at most 16")
        return
    if k * size not in (64, 128):
        yield Violation("nv-tile-k", f"tile_k {k} is not 64 or 128 bytes of {signature.dtype}", f"use {64 // size}")
        return
    if m % (along_m * UNIT_ROWS) or n % (along_n * columns):
        message = (
            f"tile {sizes(schedule.tile)} over {along_m}x{along_n} warps is not whole units of {UNIT_ROWS}x{columns}"
        )
        yield Violation("nv-warp-part", message, "use a tile that divides evenly among warps")
        return
    for what, side in zip("AB", sides(signature, schedule), strict=True):
        yield from _copies(signature, schedule, what, side)
    held = sum(side.lines * side.deep // schedule.threads for side in sides(signature, schedule) if side.held)
    most = HELD_SUMS if held and signature.dtype != "fp32" else MOST_SUMS
    if schedule.sums > most or held > HELD:
        message = (
            f"tile {sizes(schedule.tile)} keeps {schedule.sums} accumulators and {held} elements in flight per thread"
        )
        yield Violation("nv-registers", message, f"use more warps: at most {most} accumulators and {HELD} elements")
    if schedule.stages not in STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use {STAGES[0]} to {STAGES[-1]}")
    shared = shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        message = f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory"
        yield Violation("nv-shared-memory", f"{message}, {arch.name} has {arch.scratch_bytes}", "use fewer stages")


def _copies(signature: ConvSignature, schedule: GatherSchedule, what: str, side: Side) -> Iterator[Violation]:
    """What a vector may be, and that pieces are dealt out evenly."""
    vector, size = side.vector, side.size
    if vector != 1 and vector * size not in (4, 8, 16):
        message = f"{vector} elements of {what} at a time are {vector * size} bytes"
        yield Violation("nv-vector", message, f"use {16 // size}, {8 // size}, {4 // size}, or 1 for any alignment")
        return
    if vector not in (1, 4) and side.plain and side.along_k:
        message = f"{vector} floats of {what} at a time, which are transposed in registers"
        yield Violation("nv-vector", message, "use a vector of 4, or 1")
    if vector != 1 and size == 1 and not side.along_k:
        message = f"{vector} bytes of {what} at a time, and mma.sync reads them along k only"
        yield Violation("nv-vector", message, "use a vector of 1")
    if side.across == 0 or schedule.threads % side.across:
        message = f"{side.across} pieces of a row of {what} over {schedule.threads} threads"
        yield Violation("nv-pieces", message, "use a tile, vector or number of warps that divides them evenly")


class Gather(CudaConvFamily):
    name = "gather"
    schedules = (GatherSchedule,)
    host = "HostConvGather"

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[GatherSchedule]:
        return gathers(signature, arch)

    def violations(self, signature: ConvSignature, schedule: GatherSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: GatherSchedule = spec.schedule
        along_a, along_b = along_k(spec.signature.variant, h.planes)
        return tile_numbers(h.tile) | {
            "vector_a": h.vectors[0], "vector_b": h.vectors[1], "along_a": int(along_a), "along_b": int(along_b),
            "ctas_per_sm": ctas_per_sm(spec),
        }  # fmt: skip

    def config(self, spec: KernelSpec) -> Fields:
        h: GatherSchedule = spec.schedule
        along_a, along_b = along_k(spec.signature.variant, h.planes)
        size = DTYPES[spec.signature.dtype].bytes
        return {
            "tile_m": h.tile[0],
            "tile_n": h.tile[1],
            "tile_k": h.tile[2],
            "warps_m": h.warp_grid[0],
            "warps_n": h.warp_grid[1],
            "unit_m": UNIT_ROWS,
            "stages": h.stages,
            "along_a": flag(along_a),
            "along_b": flag(along_b),
            "vector_a": h.vectors[0] * size,
            "vector_b": h.vectors[1] * size,
            "ctas_per_sm": ctas_per_sm(spec),
        }

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        multiply = () if spec.signature.dtype == "fp32" else nvidia.WARP
        copied = ("LDGSTS",) if not all(side.held for side in sides(spec.signature, spec.schedule)) else ()
        return Promises(multiply, copied, shared_bytes(spec.signature, spec.schedule))


FAMILY = Gather()
