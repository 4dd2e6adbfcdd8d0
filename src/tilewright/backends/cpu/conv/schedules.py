"""How convolution kernels of the CPU family compute.

Tile is the cache block, warp tile the register block; threads are laid over the tiles at launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tilewright.ops.conv.schedule import SHAPES, LoopsSchedule

Shape = tuple[int, int, int]
Pair = tuple[int, int]
ONE: Shape = (1, 1, 1)


def _sizes(value: tuple[int, ...]) -> str:
    return "x".join(map(str, value))


class _OfOneThread:
    """What all of them say alike: a tile is one thread's."""

    __slots__ = ()

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE


@dataclass(frozen=True, slots=True)
class CpuImplicitSchedule(_OfOneThread):
    """Implicit GEMM: positions of the result by its channels; weights are packed, the rest is read where it lies."""

    pipeline: str = field(default="implicit", init=False)
    tile: Shape  # positions, channels, and elements of k between two saves of the sums
    warp_tile: Shape  # positions, channels, and elements of k a dot step eats

    pipelines: ClassVar[tuple[str, ...]] = ("implicit",)

    def label(self) -> str:
        return f"implicit_{_sizes(self.tile)}_{_sizes(self.warp_tile)}"


@dataclass(frozen=True, slots=True)
class CpuWinogradSchedule(_OfOneThread):
    """Winograd's minimal filtering of 3 x 3 windows: squares of results, as products of transformed matrices."""

    pipeline: str = field(default="winograd", init=False)
    results: int  # the side of a square of results
    tile: Pair  # squares and channels done at a time
    warp_tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("winograd",)
    minimal_filtering: ClassVar[bool] = True  # whose error bound is wider (`ops.conv.reference`)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "tile": ("m", "n")}

    def label(self) -> str:
        return f"winograd{self.results}_{_sizes(self.tile)}_{_sizes(self.warp_tile)}"


@dataclass(frozen=True, slots=True)
class CpuOuterSchedule(_OfOneThread):
    """Gradients of weights as sums of outer products: filters by channels, pixels go by."""

    pipeline: str = field(default="outer", init=False)
    tile: Shape  # filters, channels, and pixels packed at a time
    warp_tile: Shape
    split_k: int = 1  # parts the pixels are summed in

    pipelines: ClassVar[tuple[str, ...]] = ("outer",)

    def label(self) -> str:
        split = f"_split_k{self.split_k}" if self.split_k > 1 else ""
        return f"outer_{_sizes(self.tile)}_{_sizes(self.warp_tile)}{split}"


@dataclass(frozen=True, slots=True)
class CpuDirectWeightSchedule(_OfOneThread):
    """Gradients of weights of few channels: taps and channels by filters, in lanes; no patches."""

    pipeline: str = field(default="direct_weight", init=False)
    tile: Pair  # filters done at a time, and pixels packed at a time
    warp_tile: Shape  # taps and channels by filters

    pipelines: ClassVar[tuple[str, ...]] = ("direct_weight",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "tile": ("n", "k")}

    def label(self) -> str:
        return f"direct_weight_{_sizes(self.tile)}_{_sizes(self.warp_tile)}"


@dataclass(frozen=True, slots=True)
class CpuPlanarSchedule(_OfOneThread):
    """Vectors along pixels, for results of few channels: what is read is turned into planes, results back."""

    pipeline: str = field(default="planar", init=False)
    planes: int  # floats of the planes made at a time, about
    warp_tile: Shape  # channels by pixels

    pipelines: ClassVar[tuple[str, ...]] = ("planar",)

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"planar{self.planes}_{_sizes(self.warp_tile)}"


@dataclass(frozen=True, slots=True)
class CpuLanesSchedule(_OfOneThread):
    """Vectors along the channels of the result, each lane in a group of its own: depthwise, and small groups.

    `lanes` has a run of pixels in registers, `lanes_weight` (gradients of weights) a handful of taps.
    """

    pipeline: str
    warp_tile: Shape  # pixels or taps, and one vector of channels

    pipelines: ClassVar[tuple[str, ...]] = ("lanes", "lanes_weight")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"{self.pipeline}_{_sizes(self.warp_tile)}"


CpuSchedule: TypeAlias = (
    CpuImplicitSchedule
    | CpuWinogradSchedule
    | CpuOuterSchedule
    | CpuDirectWeightSchedule
    | CpuPlanarSchedule
    | CpuLanesSchedule
    | LoopsSchedule
)
