"""The schedules of convolutions whose operands are gathered, and the arithmetic of their resources.

An implicit GEMM by GEMM's multistage block (cuda/conv/gather/shape.h has the same numbers).  `vectors` say how many
elements of A and B are copied at a time, 16, 8 or 4 bytes, whose operand must be aligned so; a vector of one element
takes an operand as it lies.  `gather` reads channels side by side, `gather_planes` pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.resources import Pair, Shape, sizes
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

STAGES, AHEAD = range(3, 9), 8


@dataclass(frozen=True, slots=True)
class GatherSchedule:
    """cp.async gathers pieces of both operands, and mma.sync multiplies them; exact fp32 by multiply-adds."""

    pipeline: str
    tile: Shape
    warp_grid: Shape
    stages: int
    vectors: Pair = (1, 1)  # elements of A and B that are copied at a time

    pipelines: ClassVar[tuple[str, ...]] = ("gather", "gather_planes")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b")}

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
    """How an operand comes in; `Gathered` in cuda/conv/gather/shape.h."""

    size: int  # bytes of an element
    lines: int
    deep: int
    along_k: bool  # neighbouring threads read along k, else along lines
    vector: int

    @property
    def plain(self) -> bool:
        return self.size == 4

    @property
    def single(self) -> bool:
        """Whether it comes element by element, which no copy can."""
        return self.vector * self.size < 4

    @property
    def held(self) -> bool:
        """Whether it comes through registers: element by element, or in vectors of floats that are turned there."""
        return self.single or (self.plain and self.along_k and self.vector > 1)

    @property
    def piece_k(self) -> int:
        return 4 // self.size if self.single else self.vector if self.along_k else 1

    @property
    def across(self) -> int:
        """Threads side by side."""
        if self.along_k:
            return 8 if self.plain and self.vector == 1 else self.deep // self.piece_k
        return self.lines // (1 if self.single else self.vector)

    @property
    def stage_bytes(self) -> int:
        return self.lines * self.deep * self.size + (16 * self.deep if self.plain and self.along_k else 0)


def sides(signature: ConvSignature, schedule: GatherSchedule) -> tuple[Side, Side]:
    """A and B.  Channels side by side lie along k where pixels are lines, along lines where pixels are k."""
    along = along_k(signature.variant, schedule.pipeline)
    (m, n, k), size = schedule.tile, DTYPES[signature.dtype].bytes
    return Side(size, m, k, along[0], schedule.vectors[0]), Side(size, n, k, along[1], schedule.vectors[1])


def together(signature: ConvSignature, schedule: GatherSchedule) -> int:
    """Blocks of one multiprocessor, at least; `ConvGather::together`."""
    single = any(one.single for one in sides(signature, schedule))
    return max(1, (256 if schedule.sums > 32 else 384 if single else 512) // schedule.threads)


def along_k(variant: str, pipeline: str) -> tuple[bool, bool]:
    """Whether neighbouring threads read A and B along k."""
    planes = pipeline == "gather_planes"
    if variant == "backward_weight":
        return planes, planes
    return not planes, variant == "forward"


def unit_columns(dtype: str) -> int:
    """Of a warp's part; `Matrix::n` in cuda/primitives/matrix.h."""
    return 32 if dtype == "fp32" else 16


def shared_bytes(signature: ConvSignature, schedule: GatherSchedule) -> int:
    """Stages, or the sheet of sums in their place; what each k says; where rows and columns of results lie."""
    (m, n, k), both = schedule.tile, sides(signature, schedule)
    ring = max(schedule.stages * sum(one.stage_bytes for one in both), schedule.warp_grid[0] * 16 * n * 4)
    grain = min(1 if one.single else one.piece_k for one in both)
    return ring + 2 * AHEAD * (k // grain) * 16 + m * (12 + 8 * signature.num_d) + n * 12


# Tile and warps.
Tiles = tuple[tuple[int, int, Pair], ...]
_PIXELS: Tiles = ((128, 128, (2, 4)), (128, 64, (4, 2)), (64, 64, (2, 2)), (128, 32, (4, 1)), (128, 16, (4, 1)))
_BYTES: Tiles = (*_PIXELS[:3], (128, 32, (8, 1)), (128, 16, (8, 1)))  # as many registers hold fewer on their way
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
        yield from (("gather", one) for one in pairs)
    else:
        pairs = ((wide, wide), (wide, 1), (1, wide), (wide // 4, wide // 4), (1, 1))
        yield from (("gather", one) for one in pairs)
    yield "gather_planes", (1, 1)


def gathers(signature: ConvSignature, arch: Arch) -> Iterator[GatherSchedule]:
    """A few tiles, each for the alignments that there are."""
    weight, plain = signature.variant == "backward_weight", signature.dtype == "fp32"
    pixels = _PLAIN_PIXELS if plain else _BYTES if signature.dtype == "int8" else _PIXELS
    tiles = pixels if not weight else _PLAIN_WEIGHTS if plain else _WEIGHTS
    for pipeline, vectors in _vectors(signature):
        for m, n, warps in tiles:
            yield GatherSchedule(pipeline, (m, n, 64 // DTYPES[signature.dtype].bytes), (*warps, 1), 4, vectors)
