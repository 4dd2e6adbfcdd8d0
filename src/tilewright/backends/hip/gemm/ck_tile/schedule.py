"""The schedule of CK Tile kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops.gemm.schedule import ALL_EDGES, MNK, SHAPES, Edges, Shape, edges, joined, sizes


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
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "scheduler": ("intrawave", "interwave", "default"),
        "store": ("cshuffle", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ("store_width",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "pad": MNK}

    def label(self) -> str:
        return joined(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_grid),
            sizes(self.warp_tile),
            self.scheduler != "default" and self.scheduler,
            f"{self.store}{self.store_width or ''}",
            self.split_k > 1 and f"split_k{self.split_k}",
            self.persistent and "persistent",
            edges(self.pad),
        )
