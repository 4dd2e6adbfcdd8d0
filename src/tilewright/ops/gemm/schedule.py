"""How a GEMM kernel computes: one dataclass a family of kernels, with the fields the family has and no others.

    CPU      CpuPackedSchedule (packed, preshuffle), CpuDirectSchedule, CpuStreamSchedule (gemv, stream),
             CpuLoopsSchedule
    AMD      CkTileSchedule (compv3, compv4, compv5, mem, preshuffle), GpuLoopsSchedule
    NVIDIA   TmaWsSchedule, MultistageSchedule, SkinnySchedule, GpuLoopsSchedule

One vocabulary: *tile* is the block's work (on the CPU: the cache block), *warp grid* how many warps share it, *warp
tile* one matrix instruction's shape (on the CPU: the register block).  Every schedule has these three and its
`pipeline`; where one follows from the other fields, or is always the same, it is no field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from tilewright.arch import arch as arch_by_name
from tilewright.ops import rules

Shape = tuple[int, int, int]
Pair = tuple[int, int]
Edges = tuple[bool, bool, bool]

_MNK = ("m", "n", "k")
_SHAPES: Mapping[str, tuple[str, ...]] = {"tile": _MNK, "warp_tile": _MNK, "warp_grid": _MNK}
ONE: Shape = (1, 1, 1)
ALL_EDGES: Edges = (True, True, True)


def sizes(value: tuple[int, ...]) -> str:
    """128x64x32, as names and messages say it."""
    return "x".join(map(str, value))


def _edges(pad: Edges) -> str:
    """For a name: along which axes there is edge code."""
    return "pad" + "".join(axis for axis, on in zip(_MNK, pad, strict=True) if on) if any(pad) else "nopad"


def _label(*parts: object) -> str:
    """The parts of a name that say something."""
    return "_".join(str(one) for one in parts if one)


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
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**_SHAPES, "pad": _MNK}
    warp_grid: ClassVar[Shape] = ONE  # threads are laid over the tiles at launch

    def label(self) -> str:
        return _label(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_tile),
            self.split_k > 1 and f"split_k{self.split_k}",
            self.unroll > 1 and f"unroll{self.unroll}",
            self.prefetch and f"prefetch{self.prefetch}",
            not all(self.pad) and _edges(self.pad),
        )


@dataclass(frozen=True, slots=True)
class CpuDirectSchedule:
    """Register blocks straight from where A and B lie; there is no cache block beyond them."""

    pipeline: str = field(default="direct", init=False)
    warp_tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("direct",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = _SHAPES
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
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = _SHAPES
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        ahead = self.prefetch and f"prefetch{self.prefetch}"
        return _label(self.pipeline, sizes(self.tile), sizes(self.warp_tile), ahead)


@dataclass(frozen=True, slots=True)
class CpuLoopsSchedule:
    """Plain loops: any size, stride and element type; the floor."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = _SHAPES
    tile: ClassVar[Shape] = ONE
    warp_tile: ClassVar[Shape] = ONE
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True)
class CkTileSchedule:
    """An instance of CK Tile's templates."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    scheduler: str = "intrawave"
    store: str = "cshuffle"  # how results leave: through LDS, or directly
    pad: Edges = ALL_EDGES
    persistent: bool = False
    split_k: int = 1
    store_width: int = 0  # elements of one store; 0 is as many as a lane can

    pipelines: ClassVar[tuple[str, ...]] = ("compv3", "compv4", "mem", "compv5", "preshuffle")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "scheduler": ("intrawave", "interwave", "default"),
        "store": ("cshuffle", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ("store_width",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**_SHAPES, "pad": _MNK}

    def label(self) -> str:
        return _label(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_grid),
            sizes(self.warp_tile),
            self.scheduler != "default" and self.scheduler,
            f"{self.store}{self.store_width or ''}",
            self.split_k > 1 and f"split_k{self.split_k}",
            self.persistent and "persistent",
            _edges(self.pad),
        )


@dataclass(frozen=True, slots=True)
class TmaWsSchedule:
    """The copy engine feeds wgmma, warp-specialised and persistent.

    A warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
    """

    pipeline: str = field(default="tma_ws", init=False)
    tile: Shape
    stages: int  # tiles of A and B under way
    cluster: Pair = (1, 1)  # blocks that share what they fetch, along m and n; with cluster_k, the k of one tile
    grouping: str = "cooperative"  # warpgroups share a tile, or take turns
    turned: bool = False  # rows of the problem along wgmma's narrow side: for few rows
    dealing: str = "tiles"  # to blocks: whole tiles, the k steps of all of them evenly, or parts of k
    store: str = "direct"  # or tma: results leave through the copy engine

    pipelines: ClassVar[tuple[str, ...]] = ("tma_ws",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "grouping": ("cooperative", "pingpong"),
        "dealing": ("tiles", "stream_k", "split_k", "cluster_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**_SHAPES, "cluster": ("m", "n")}

    @property
    def groups(self) -> int:
        """Multiplying warpgroups that share a tile: of 192 rows each has 64."""
        if self.grouping == "pingpong":
            return 1
        return 3 if self.tile[1 if self.turned else 0] == 192 else 2

    @property
    def warp_tile(self) -> Shape:
        m, n, k = self.tile
        return (m, 64, k // 4) if self.turned else (64, n, k // 4)

    @property
    def warp_grid(self) -> Shape:
        return (1, self.groups, 1) if self.turned else (self.groups, 1, 1)

    def label(self) -> str:
        return _label(
            "tma_ws",
            sizes(self.tile),
            self.grouping,
            self.turned and "turned",
            self.dealing != "tiles" and self.dealing,
            self.cluster != (1, 1) and f"cluster{sizes(self.cluster)}",
            f"stages{self.stages}",
            self.store == "direct" and "direct",
        )


@dataclass(frozen=True, slots=True)
class MultistageSchedule:
    """Stages filled by cp.async feed mma.sync (exact fp32: multiply-adds)."""

    pipeline: str = field(default="multistage", init=False)
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    stages: int
    vector: Pair  # elements of A and B that are copied at a time
    dealing: str = "tiles"

    pipelines: ClassVar[tuple[str, ...]] = ("multistage",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"dealing": ("tiles", "stream_k", "split_k")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**_SHAPES, "vector": ("a", "b")}

    def label(self) -> str:
        return _label(
            "multistage",
            sizes(self.tile),
            sizes(self.warp_grid),
            sizes(self.warp_tile),
            self.dealing != "tiles" and self.dealing,
            f"stages{self.stages}",
            f"vector{sizes(self.vector)}",
        )


@dataclass(frozen=True, slots=True)
class SkinnySchedule:
    """Few rows or few columns against a large matrix, at the speed of memory; the warps share k."""

    pipeline: str = field(default="skinny", init=False)
    tile: Shape  # 64 of k a warp
    few: str = "rows"

    pipelines: ClassVar[tuple[str, ...]] = ("skinny",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"few": ("rows", "columns")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = _SHAPES

    @property
    def warp_tile(self) -> Shape:
        return (16, 8, 16) if self.few == "columns" else (8, 16, 16)

    @property
    def warp_grid(self) -> Shape:
        return (1, 1, self.tile[2] // 64)

    def label(self) -> str:
        return f"skinny_{sizes(self.tile)}_{self.few}"


@dataclass(frozen=True, slots=True)
class GpuLoopsSchedule:
    """256 threads on one tile, element by element: any element types, strides and alignment; the floor."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = _SHAPES
    tile: ClassVar[Shape] = (64, 64, 16)
    warp_tile: ClassVar[Shape] = (4, 4, 1)
    warp_grid: ClassVar[Shape] = (16, 16, 1)

    def label(self) -> str:
        return self.pipeline


CpuSchedule: TypeAlias = CpuPackedSchedule | CpuDirectSchedule | CpuStreamSchedule | CpuLoopsSchedule
NvidiaSchedule: TypeAlias = TmaWsSchedule | MultistageSchedule | SkinnySchedule | GpuLoopsSchedule
AmdSchedule: TypeAlias = CkTileSchedule | GpuLoopsSchedule
GemmSchedule: TypeAlias = CpuSchedule | AmdSchedule | NvidiaSchedule

# The families by the arch families they are for.
SCHEDULES: Mapping[str, tuple[type[Any], ...]] = {
    "cpu": (CpuPackedSchedule, CpuDirectSchedule, CpuStreamSchedule, CpuLoopsSchedule),
    "cdna": (CkTileSchedule, GpuLoopsSchedule),
    "rdna": (CkTileSchedule, GpuLoopsSchedule),
    "nvidia": (TmaWsSchedule, MultistageSchedule, SkinnySchedule, GpuLoopsSchedule),
}


def schedule_class(arch: str, pipeline: object) -> type[Any]:
    """The family a pipeline of an arch belongs to."""
    return rules.schedule_class("gemm", arch, SCHEDULES.get(arch_by_name(arch).family, ()), pipeline)
