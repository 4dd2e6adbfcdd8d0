"""pointwise_multistage: GEMM's multistage on 1x1 filters, channels last or first (planes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tilewright.backends.cuda.conv.pointwise import Kind, PointwiseFamily
from tilewright.backends.cuda.conv.resources import Pair, Shape
from tilewright.backends.cuda.conv.shared import Fields, sizes
from tilewright.backends.cuda.gemm.multistage import MultistageSchedule
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

KINDS = {"pointwise_multistage": Kind(planes=False), "planes_multistage": Kind(planes=True)}
_PIPELINES = {kind: pipeline for pipeline, kind in KINDS.items()}


@renamed_fields({"dealing": "tile_scheduler"}, {"tile_scheduler": {"tiles": "data_parallel"}})
@dataclass(frozen=True, slots=True)
class PointwiseMultistageSchedule:
    """GEMM's multistage."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    stages: int
    vectors: Pair  # elements of A and B that are copied at a time
    tile_scheduler: str = "data_parallel"

    pipelines: ClassVar[tuple[str, ...]] = tuple(KINDS)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "tile_scheduler": ("data_parallel", "stream_k", "split_k"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b")}

    @property
    def planes(self) -> bool:
        return KINDS[self.pipeline].planes

    @property
    def product(self) -> MultistageSchedule:
        return MultistageSchedule(
            self.tile, self.warp_tile, self.warp_grid, self.stages, self.vectors, self.tile_scheduler
        )

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), sizes(self.warp_grid), sizes(self.warp_tile)]
        parts += [self.tile_scheduler] if self.tile_scheduler != "data_parallel" else []
        return "_".join([*parts, f"stages{self.stages}", f"vectors{sizes(self.vectors)}"])


class PointwiseMultistage(PointwiseFamily):
    name = "pointwise_multistage"
    gemm_family = "multistage"
    product = MultistageSchedule
    schedules = (PointwiseMultistageSchedule,)

    def schedule_for(self, product: Any, planes: bool) -> PointwiseMultistageSchedule:
        h: MultistageSchedule = product
        return PointwiseMultistageSchedule(
            _PIPELINES[Kind(planes)], h.tile, h.warp_tile, h.warp_grid, h.stages, h.vector, h.tile_scheduler
        )

    def wanted(self, product: Any, signature: ConvSignature, wgmma: bool) -> bool:
        return not wgmma

    def config(self, spec: KernelSpec) -> Fields:
        h: PointwiseMultistageSchedule = spec.schedule
        size = DTYPES[spec.signature.dtype].bytes
        return {
            **self.layout_config(spec),
            "pipeline": "tw::Pipeline::multistage",
            "tile_m": h.tile[0],
            "tile_n": h.tile[1],
            "tile_k": h.tile[2],
            "warps_m": h.warp_grid[0],
            "warps_n": h.warp_grid[1],
            "unit_m": h.warp_tile[0],
            "stages": h.stages,
            "vector_a": h.vectors[0] * size,
            "vector_b": h.vectors[1] * size,
            "tile_scheduler": f"tw::TileScheduler::{h.tile_scheduler}",
        }


FAMILY = PointwiseMultistage()
