"""The schedule of our own kernels for AMD GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops.gemm.schedule import SHAPES, Shape, joined, sizes


@dataclass(frozen=True, slots=True)
class TiledSchedule:
    """Tiles staged in LDS, multiplied by the arch's matrix instructions, 16 x 16 sums of a wave at a time."""

    pipeline: str = field(default="tiled", init=False)
    tile: Shape
    warp_grid: Shape
    stages: int = 2  # places in LDS: with two, one is filled while the other is multiplied
    split_k: int = 1

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_tile: ClassVar[Shape] = (16, 16, 1)  # how deep an instruction is depends on arch and types

    def label(self) -> str:
        return joined(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_grid),
            f"stages{self.stages}",
            self.split_k > 1 and f"split_k{self.split_k}",
        )
