"""pointwise_skinny: GEMM's skinny on 1x1 filters, of few pixels, or of few filters or channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tilewright.backends.cuda.conv.pointwise import PointwiseFamily
from tilewright.backends.cuda.conv.resources import Shape
from tilewright.backends.cuda.conv.shared import Fields, flag, sizes
from tilewright.backends.cuda.gemm.skinny import SkinnySchedule
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

SKINNY = {"pointwise_skinny_m": "m", "pointwise_skinny_n": "n"}
_PIPELINES = {side: pipeline for pipeline, side in SKINNY.items()}
_TILES = ((16, 8, 512), (16, 16, 512), (32, 8, 512), (32, 16, 512), (16, 32, 512))


@renamed_fields(
    {}, {"pipeline": {"pointwise_few_rows": "pointwise_skinny_m", "pointwise_few_columns": "pointwise_skinny_n"}}
)
@dataclass(frozen=True, slots=True)
class PointwiseSkinnySchedule:
    """GEMM's skinny: of few pixels (rows of the product), or few filters or channels (columns)."""

    pipeline: str
    tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = tuple(SKINNY)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    planes: ClassVar[bool] = False

    @property
    def skinny_dim(self) -> str:
        return SKINNY[self.pipeline]

    @property
    def warp_tile(self) -> Shape:
        return (16, 8, 16) if self.skinny_dim == "n" else (8, 16, 16)

    @property
    def warp_grid(self) -> Shape:
        return (1, 1, self.tile[2] // 64)

    @property
    def product(self) -> SkinnySchedule:
        return SkinnySchedule(self.tile, self.skinny_dim)

    def label(self) -> str:
        return f"{self.pipeline}_{sizes(self.tile)}"


class PointwiseSkinny(PointwiseFamily):
    name = "pointwise_skinny"
    gemm_family = "skinny"
    product = SkinnySchedule
    schedules = (PointwiseSkinnySchedule,)

    def schedule_for(self, product: Any, planes: bool) -> PointwiseSkinnySchedule | None:
        return None if planes else PointwiseSkinnySchedule(_PIPELINES[product.skinny_dim], product.tile)

    def wanted(self, product: Any, signature: ConvSignature, wgmma: bool) -> bool:
        return product.skinny_dim in _PIPELINES and product.tile in _TILES and signature.dtype in ("bf16", "fp16")

    def config(self, spec: KernelSpec) -> Fields:
        h: PointwiseSkinnySchedule = spec.schedule
        return {
            **self.layout_config(spec),
            "pipeline": "tw::Pipeline::skinny",
            "tile_m": h.tile[0],
            "tile_n": h.tile[1],
            "warps": h.warp_grid[2],
            "few_columns": flag(h.skinny_dim == "n"),
        }


FAMILY = PointwiseSkinny()
