"""The fallback GEMM kernel of every GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops.gemm.schedule import SHAPES, Shape


@dataclass(frozen=True, slots=True)
class GpuLoopsSchedule:
    """256 threads on one tile, element by element: any element types, strides and alignment; the fallback kernel."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    tile: ClassVar[Shape] = (64, 64, 16)
    warp_tile: ClassVar[Shape] = (4, 4, 1)
    warp_grid: ClassVar[Shape] = (16, 16, 1)

    def label(self) -> str:
        return self.pipeline
