"""The schedule of multistage kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops.gemm.schedule import SHAPES, Pair, Shape, joined, sizes
from tilewright.renames import renamed_fields


@renamed_fields({"dealing": "tile_scheduler"}, {"tile_scheduler": {"tiles": "data_parallel"}})
@dataclass(frozen=True, slots=True)
class MultistageSchedule:
    """Stages filled by cp.async feed mma.sync (exact fp32: multiply-adds)."""

    pipeline: str = field(default="multistage", init=False)
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    stages: int
    vector: Pair  # elements of A and B that are copied at a time
    tile_scheduler: str = "data_parallel"

    pipelines: ClassVar[tuple[str, ...]] = ("multistage",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"tile_scheduler": ("data_parallel", "stream_k", "split_k")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vector": ("a", "b")}

    def label(self) -> str:
        return joined(
            "multistage",
            sizes(self.tile),
            sizes(self.warp_grid),
            sizes(self.warp_tile),
            self.tile_scheduler != "data_parallel" and self.tile_scheduler,
            f"stages{self.stages}",
            f"vector{sizes(self.vector)}",
        )
