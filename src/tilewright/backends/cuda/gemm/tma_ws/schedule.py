"""The schedule of tma_ws kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops.gemm.schedule import SHAPES, Pair, Shape, joined, sizes
from tilewright.renames import renamed_fields


@renamed_fields({"turned": "swap_ab", "dealing": "tile_scheduler"}, {"tile_scheduler": {"tiles": "data_parallel"}})
@dataclass(frozen=True, slots=True)
class TmaWsSchedule:
    """TMA feeds wgmma, warp-specialised and persistent.

    A warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
    """

    pipeline: str = field(default="tma_ws", init=False)
    tile: Shape
    stages: int  # tiles of A and B under way
    cluster: Pair = (1, 1)  # blocks that share what they fetch, along m and n; with cluster_k, the k of one tile
    grouping: str = "cooperative"  # warpgroups share a tile, or alternate
    swap_ab: bool = False  # computes the transposed product: rows along wgmma's narrow side, for few rows
    tile_scheduler: str = "data_parallel"  # or stream_k, split_k, or cluster_k: splits of k in a cluster
    store: str = "direct"  # or tma: the epilogue store

    pipelines: ClassVar[tuple[str, ...]] = ("tma_ws",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "grouping": ("cooperative", "pingpong"),
        "tile_scheduler": ("data_parallel", "stream_k", "split_k", "cluster_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @property
    def groups(self) -> int:
        """Consumer warpgroups that share a tile: of 192 rows each has 64."""
        if self.grouping == "pingpong":
            return 1
        return 3 if self.tile[1 if self.swap_ab else 0] == 192 else 2

    @property
    def warp_tile(self) -> Shape:
        m, n, k = self.tile
        return (m, 64, k // 4) if self.swap_ab else (64, n, k // 4)

    @property
    def warp_grid(self) -> Shape:
        return (1, self.groups, 1) if self.swap_ab else (self.groups, 1, 1)

    def label(self) -> str:
        return joined(
            "tma_ws",
            sizes(self.tile),
            self.grouping,
            self.swap_ab and "swap_ab",
            self.tile_scheduler != "data_parallel" and self.tile_scheduler,
            self.cluster != (1, 1) and f"cluster{sizes(self.cluster)}",
            f"stages{self.stages}",
            self.store == "direct" and "direct",
        )
