"""How a convolution by CK Tile computes, and schedules worth proposing.  A pool proposes; legality disposes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.hip.ck_tile_pipelines import PIPELINES
from tilewright.backends.hip.conv.shared import EXHAUSTIVE, MERGED, SPECIALS, Shape, square_warp_tiles
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

# Under these names filters and trait configs ask for what follows from other fields.
CK_SWITCHES: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("double_smem_buffer", "split_image", "explicit_gemm", "two_stage"), ()
)
WIDEST = 16  # elements of one access, of one byte each


@dataclass(frozen=True, slots=True)
class CkTileConvSchedule:
    """GEMM's instance of CK Tile with windows of our own: rows are pixels or filters, k taps and channels or pixels."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    vectors: Shape = (8, 8, 8)  # elements of A and B that are read at once, and of the result that are stored
    scheduler: str = "intrawave"
    store: str = "cshuffle"  # how results leave: through LDS, or directly
    split_k: int = 1
    special: str = "any"  # what else it is for: see `SPECIALS`
    merged: int = 1  # groups that are one product, with zeros between them

    pipelines: ClassVar[tuple[str, ...]] = ("compv3", "compv4", "mem", "compv5")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "scheduler": ("intrawave", "interwave"),
        "store": ("cshuffle", "direct"),
        "special": SPECIALS,
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b", "c"), **CK_SWITCHES}

    # What CK Tile's tile engine has switches for; here it follows from the fields.

    @property
    def double_smem_buffer(self) -> bool:
        """Two buffers in LDS, in turn."""
        known = PIPELINES.get(self.pipeline)
        return known is not None and known.lds_buffers > 1

    @property
    def split_image(self) -> bool:
        """Whether one launch takes an image in parts: none does."""
        return False

    @property
    def explicit_gemm(self) -> bool:
        """Windows of one tap as a plain product."""
        return self.special == "pointwise"

    @property
    def two_stage(self) -> bool:
        """Sums of parts go through memory in fp32 and are added in a second kernel."""
        return self.split_k > 1

    def label(self) -> str:
        parts = [self.pipeline, *("x".join(map(str, shape)) for shape in (self.tile, self.warp_grid, self.warp_tile))]
        parts += [self.scheduler, self.store, "vectors" + "x".join(map(str, self.vectors))]
        if self.split_k > 1:
            parts.append(f"split_k{self.split_k}")
        if self.special != "any":
            parts.append(self.special)
        if self.merged > 1:
            parts.append(f"merged{self.merged}")
        return "_".join(parts)


def example_schedule() -> CkTileConvSchedule:
    """Its templates are those most kernels use."""
    return CkTileConvSchedule("compv3", (128, 128, 32), (32, 32, 16), (2, 2, 1))


def _warp_tile(signature: ConvSignature, arch: Arch, width: int) -> Shape:
    """The matrix instruction of a width with the longest k up to 32 or 64 bytes a row."""
    tiles = [tile for tile in square_warp_tiles(signature, arch) if tile[0] == width] or [(width, width, 16)]
    most = (32 if width == 32 else 64) // DTYPES[signature.dtype].bytes
    return max((tile for tile in tiles if tile[2] <= most), default=min(tiles))


def _stored(signature: ConvSignature) -> int:
    return WIDEST // DTYPES[signature.dtype_out].bytes


# Tile with k for two-byte elements, warp grid, side of the warp tile, pipeline, scheduler.
Row = tuple[Shape, Shape, int, str, str]
_PIXELS: tuple[Row, ...] = (
    ((256, 128, 32), (2, 2, 1), 32, "compv3", "intrawave"),
    ((128, 128, 64), (2, 2, 1), 32, "compv3", "intrawave"),
    ((128, 128, 32), (2, 2, 1), 32, "compv4", "intrawave"),
    ((128, 64, 64), (2, 2, 1), 32, "compv3", "intrawave"),
    ((64, 64, 64), (2, 2, 1), 16, "mem", "interwave"),
    ((128, 32, 64), (4, 1, 1), 16, "mem", "intrawave"),
)
_WEIGHTS: tuple[Row, ...] = (
    ((128, 128, 32), (2, 2, 1), 32, "compv4", "intrawave"),
    ((64, 128, 32), (2, 2, 1), 32, "compv4", "intrawave"),
    ((64, 64, 64), (2, 2, 1), 16, "mem", "intrawave"),
    ((32, 64, 64), (1, 4, 1), 16, "mem", "intrawave"),
)
_SPLITS = (1, 4, 16, 64)


def _schedule(signature: ConvSignature, arch: Arch, row: Row, vector: Shape, **more: object) -> CkTileConvSchedule:
    tile, grid, side, pipeline, scheduler = row
    deep = tile[2] * 2 // DTYPES[signature.dtype].bytes
    step = _warp_tile(signature, arch, side)
    return CkTileConvSchedule(
        pipeline,
        (tile[0], tile[1], max(deep, step[2])),
        step,
        grid,
        vector,
        scheduler,
        **more,  # type: ignore[arg-type]
    )


def _default(signature: ConvSignature, arch: Arch) -> Iterator[CkTileConvSchedule]:
    """One kernel for each kind of problem: large, middle, few filters; the narrower vectors in middle tiles."""
    widest, stored = WIDEST // DTYPES[signature.dtype].bytes, _stored(signature)
    weight = signature.variant == "backward_weight"
    rows = _WEIGHTS if weight else _PIXELS
    for row in rows:
        for split in _SPLITS if weight else (1,):
            yield _schedule(signature, arch, row, (widest, widest, stored), split_k=split)
    for row in rows[1:3]:
        yield _schedule(
            signature, arch, row, (widest, widest, stored), special="pointwise", split_k=16 if weight else 1
        )
    for vector in _narrower(widest):
        for row in (rows[1], rows[-2]):
            yield _schedule(signature, arch, row, (vector, vector, stored), split_k=16 if weight else 1)
    if signature.variant != "backward_weight":  # few channels: a filter is read in wider loads than pixels
        yield _schedule(signature, arch, rows[3], (1, widest, stored))
        for merged, channels in MERGED:
            row = rows[3] if channels > 1 else rows[5]
            schedule = _schedule(signature, arch, row, (widest, min(widest, channels), stored), merged=merged)
            yield schedule
            yield replace(schedule, special="copied")
    for row in (rows[0], rows[1], *rows[-2:]):  # copies are as wide as can be
        for split in (4, 16, 64) if weight else (1,):
            yield _schedule(signature, arch, row, (widest, widest, stored), special="copied", split_k=split)


def _narrower(widest: int) -> tuple[int, ...]:
    """Vectors below the widest: half, quarter, one."""
    return tuple(dict.fromkeys(max(1, width) for width in (widest // 2, widest // 4, 1)))


def strategies(signature: ConvSignature) -> tuple[Shape, ...]:
    """Vectors of A, B and the result: all as wide as can be, one of them narrower, all narrower."""
    widest, stored = WIDEST // DTYPES[signature.dtype].bytes, _stored(signature)
    half, quarter = max(1, widest // 2), max(1, widest // 4)
    vectors = [
        (widest, widest, stored),
        (widest, widest, 1),
        (half, half, stored),
        (quarter, quarter, stored),
        (1, widest, stored),
        (1, 1, stored),
    ]
    return tuple(dict.fromkeys(vectors))


_KINDS = (("compv3", "intrawave"), ("compv4", "intrawave"), ("mem", "intrawave"), ("mem", "interwave"))
_IN_TURN = ("compv5", (1, 1, 2))  # two waves that take turns along k


def _grids(tile: Shape, arch: Arch, far: bool) -> Iterator[Shape]:
    """Waves over a tile: four as square as it is, and fewer of a small one; `far`: every one the arch has."""
    m, n, _ = tile
    square = (4, 1, 1) if m >= 4 * n else (1, 4, 1) if n >= 4 * m else (2, 2, 1)
    few = {(1, 1, 1), (2, 1, 1) if m >= n else (1, 2, 1)} if m * n <= 64 * 64 else set()
    for grid in arch.warp_grids:
        if grid[2] == 1 and (far or grid == square or grid in few):
            yield grid


def _sides(tile: Shape, grid: Shape, far: bool) -> tuple[int, ...]:
    """Sides of the matrix instruction: the larger where a wave's part is whole ones of it."""
    large = tile[0] // grid[0] % 32 == 0 and tile[1] // grid[1] % 32 == 0
    return (32, 16) if large and far else (32,) if large else (16,)


def _geometries(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[tuple[Shape, Shape, Shape]]:
    """Tile, warp grid and warp tile that divide each other."""
    far, size = pool == EXHAUSTIVE, DTYPES[signature.dtype].bytes
    sides = (16, 32, 64, 128, 256) if far else (32, 64, 128, 256)
    for m, n, k in product(sides, sides, (row_bytes // size for row_bytes in (64, 128))):
        for grid in _grids((m, n, k), arch, far):
            for side in _sides((m, n, k), grid, far):
                step = _warp_tile(signature, arch, side)
                if m % (grid[0] * step[0]) == n % (grid[1] * step[1]) == k % step[2] == 0:
                    yield (m, n, k), grid, step


def _swept(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CkTileConvSchedule]:
    """Every axis varied.

    `profiler` keeps to the widest vectors and to whole groups; `exhaustive` has more tiles, warp grids and splits.
    """
    far, every = pool == EXHAUSTIVE, strategies(signature)
    widest = far or pool == "profiler"
    weight = signature.variant == "backward_weight"
    splits = ((1, 4, 16, 64) if far else (1, 16)) if weight else (1,)
    for (tile, grid, step), (pipeline, scheduler) in product(_geometries(pool, signature, arch), _KINDS):
        for vector, split in product(every[:1] if widest else every, splits):
            schedule = CkTileConvSchedule(pipeline, tile, step, grid, vector, scheduler, split_k=split)
            yield schedule
            if vector == every[0]:
                yield replace(schedule, special="pointwise")
                yield replace(schedule, special="copied")
                if not weight and pool != "profiler":
                    for groups, wide in MERGED[1:]:
                        several = replace(schedule, merged=groups, vectors=(vector[0], min(vector[0], wide), vector[2]))
                        yield several
                        yield replace(several, special="copied")
                if split == 1:
                    yield replace(schedule, store="direct", vectors=(*vector[:2], 1))


def _in_turn(signature: ConvSignature, arch: Arch) -> Iterator[CkTileConvSchedule]:
    """Two waves that share a tile along k: for few pixels and filters, where k is long."""
    pipeline, grid = _IN_TURN
    if signature.variant != "forward" or grid not in arch.warp_grids:
        return
    size = DTYPES[signature.dtype].bytes
    for m, n, k, side in product((32, 64), (32, 64), (64 // size, 128 // size), (16, 32)):
        step = _warp_tile(signature, arch, side)
        schedule = CkTileConvSchedule(pipeline, (m, n, max(k, step[2])), step, grid)
        for vectors in strategies(signature):
            yield replace(schedule, vectors=vectors)


def proposals(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CkTileConvSchedule]:
    """What the pool proposes for one signature; some of it may be illegal."""
    if pool in ("default", EXHAUSTIVE):
        yield from _default(signature, arch)
    if pool != "default":
        yield from _swept("full" if pool == EXHAUSTIVE else pool, signature, arch)
        yield from _in_turn(signature, arch) if pool != "profiler" else ()
        yield from _swept(pool, signature, arch) if pool == EXHAUSTIVE else ()
