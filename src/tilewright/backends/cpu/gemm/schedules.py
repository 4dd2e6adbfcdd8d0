"""How a GEMM kernel of the CPU computes: one dataclass a family of kernels.

tile is the cache block, warp tile the register block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tilewright.ops.gemm.schedule import ALL_EDGES, MNK, ONE, SHAPES, Edges, Shape, edges, joined, sizes


@dataclass(frozen=True, slots=True)
class CpuPackedSchedule:
    """Panels of A and B are packed into cache blocks; preshuffle: B was packed beforehand."""

    pipeline: str
    tile: Shape
    warp_tile: Shape  # rows, columns, and k elements a dot step eats
    pad: Edges = ALL_EDGES  # edge code for sizes that are no multiple, along m, n, k
    split_k: int = 1
    unroll: int = 1  # k steps in one turn of the inner loop
    prefetch: int = 0  # how many k steps ahead; 0 is none

    pipelines: ClassVar[tuple[str, ...]] = ("packed", "preshuffle")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("prefetch",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "pad": MNK}
    warp_grid: ClassVar[Shape] = ONE  # threads are laid over the tiles at launch

    def label(self) -> str:
        return joined(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_tile),
            self.split_k > 1 and f"split_k{self.split_k}",
            self.unroll > 1 and f"unroll{self.unroll}",
            self.prefetch and f"prefetch{self.prefetch}",
            not all(self.pad) and edges(self.pad),
        )


@dataclass(frozen=True, slots=True)
class CpuDirectSchedule:
    """Register blocks straight from where A and B lie; there is no cache block beyond them."""

    pipeline: str = field(default="direct", init=False)
    warp_tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("direct",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"direct_{sizes(self.warp_tile)}"


@dataclass(frozen=True, slots=True)
class CpuStreamSchedule:
    """One operand is streamed past a handful of vectors of the other: gemv up to four of them, stream more."""

    pipeline: str
    tile: Shape  # vectors at most, sums of one kept at a time, k elements between two saves
    warp_tile: Shape
    prefetch: int = 0

    pipelines: ClassVar[tuple[str, ...]] = ("gemv", "stream")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("prefetch",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        ahead = self.prefetch and f"prefetch{self.prefetch}"
        return joined(self.pipeline, sizes(self.tile), sizes(self.warp_tile), ahead)


@dataclass(frozen=True, slots=True)
class CpuLoopsSchedule:
    """Plain loops: any size, stride and element type; the floor."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    tile: ClassVar[Shape] = ONE
    warp_tile: ClassVar[Shape] = ONE
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        return self.pipeline


CpuSchedule: TypeAlias = CpuPackedSchedule | CpuDirectSchedule | CpuStreamSchedule | CpuLoopsSchedule
SCHEDULES = (CpuPackedSchedule, CpuDirectSchedule, CpuStreamSchedule, CpuLoopsSchedule)
