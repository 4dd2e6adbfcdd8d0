"""The schedule of tma_ws kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.ops.gemm.schedule import SHAPES, Pair, Shape, joined, sizes


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
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

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
        return joined(
            "tma_ws",
            sizes(self.tile),
            self.grouping,
            self.turned and "turned",
            self.dealing != "tiles" and self.dealing,
            self.cluster != (1, 1) and f"cluster{sizes(self.cluster)}",
            f"stages{self.stages}",
            self.store == "direct" and "direct",
        )
