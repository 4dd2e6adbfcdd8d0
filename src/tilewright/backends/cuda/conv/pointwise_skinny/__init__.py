"""pointwise_skinny: GEMM's skinny on windows of one pixel, of few pixels, or of few filters or channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.backends.cuda.conv.pointwise import PointwiseFamily
from tilewright.backends.cuda.conv.resources import Shape
from tilewright.backends.cuda.conv.shared import Fields, flag, sizes
from tilewright.backends.cuda.gemm.skinny import SkinnySchedule
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

FEW = {"pointwise_few_rows": "rows", "pointwise_few_columns": "columns"}
_PIPELINES = {few: pipeline for pipeline, few in FEW.items()}
_TILES = ((16, 8, 512), (16, 16, 512), (32, 8, 512), (32, 16, 512), (16, 32, 512))


@dataclass(frozen=True, slots=True)
class PointwiseSkinnySchedule:
    """GEMM's skinny: of few pixels (rows of the product), or few filters or channels (columns)."""

    pipeline: str
    tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = tuple(FEW)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    planes: ClassVar[bool] = False

    @property
    def few(self) -> str:
        return FEW[self.pipeline]

    @property
    def warp_tile(self) -> Shape:
        return (16, 8, 16) if self.few == "columns" else (8, 16, 16)

    @property
    def warp_grid(self) -> Shape:
        return (1, 1, self.tile[2] // 64)

    @property
    def product(self) -> SkinnySchedule:
        return SkinnySchedule(self.tile, self.few)

    def label(self) -> str:
        return f"{self.pipeline}_{sizes(self.tile)}"


class PointwiseSkinny(PointwiseFamily):
    name = "pointwise_skinny"
    gemm_family = "skinny"
    product = SkinnySchedule
    schedules = (PointwiseSkinnySchedule,)

    def schedule_for(self, product: Any, planes: bool) -> PointwiseSkinnySchedule | None:
        return None if planes else PointwiseSkinnySchedule(_PIPELINES[product.few], product.tile)

    def wanted(self, product: Any, signature: ConvSignature, wgmma: bool) -> bool:
        return product.tile in _TILES and signature.dtype in ("bf16", "fp16")

    def config(self, spec: KernelSpec) -> Fields:
        h: PointwiseSkinnySchedule = spec.schedule
        return {
            **self.layout_config(spec),
            "pipeline": "tw::Pipeline::skinny",
            "tile_m": h.tile[0],
            "tile_n": h.tile[1],
            "warps": h.warp_grid[2],
            "few_columns": flag(h.few == "columns"),
        }


FAMILY = PointwiseSkinny()
