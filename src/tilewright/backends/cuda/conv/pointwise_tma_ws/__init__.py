"""pointwise_tma_ws: GEMM's tma_ws on 1x1 filters, with swap_ab too, channels last or first (planes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tilewright.backends.cuda.conv.pointwise import Kind, PointwiseFamily
from tilewright.backends.cuda.conv.resources import Pair, Shape
from tilewright.backends.cuda.conv.shared import Fields, flag, sizes
from tilewright.backends.cuda.gemm.tma_ws import TmaWsSchedule
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

KINDS = {
    "pointwise_tma_ws": Kind(planes=False),
    "pointwise_swap_ab": Kind(planes=False, swap_ab=True),
    "planes_tma_ws": Kind(planes=True),
    "planes_swap_ab": Kind(planes=True, swap_ab=True),
}
_PIPELINES = {kind: pipeline for pipeline, kind in KINDS.items()}

# Tiles and clusters of GEMM's default pool that are proposed: those that add something on 1200 drawn windows of one
# pixel, by the times of GEMM's learned model for an H200; the estimate chooses no worse among them than among all.
_KEPT: frozenset[tuple[int, int, Pair]] = frozenset(
    (m, n, cluster)
    for m, n, *clusters in (
        (64, 32, (1, 1)),
        (64, 48, (1, 1)),
        (64, 64, (1, 1)),
        (64, 96, (1, 1)),
        (64, 128, (1, 1), (2, 1)),
        (64, 192, (1, 1)),
        (128, 16, (1, 1)),
        (128, 32, (1, 1), (4, 1)),
        (128, 64, (1, 1), (4, 1)),
        (128, 128, (1, 1), (2, 1), (2, 2)),
        (128, 160, (2, 1)),
        (128, 192, (1, 1), (2, 1), (4, 2)),
        (128, 224, (2, 1)),
        (128, 256, (1, 1)),
        (192, 64, (1, 1)),
        (192, 128, (1, 2)),
        (192, 160, (2, 1)),
        (256, 32, (1, 1)),
        (256, 64, (1, 1)),
        (256, 128, (1, 1), (1, 2)),
        (8, 64, (1, 1)),  # with swap_ab, as are 128x128 and 256x128 beside the others
        (32, 64, (1, 1)),
        (32, 128, (1, 1)),
    )
    for cluster in clusters
)


@renamed_fields(
    {"dealing": "tile_scheduler"},
    {
        "pipeline": {"pointwise_turned": "pointwise_swap_ab", "planes_turned": "planes_swap_ab"},
        "tile_scheduler": {"tiles": "data_parallel"},
    },
)
@dataclass(frozen=True, slots=True)
class PointwiseTmaWsSchedule:
    """GEMM's tma_ws; pointwise_swap_ab: with pixels (of gradients of weights: filters) along wgmma's narrow side."""

    pipeline: str
    tile: Shape
    stages: int
    cluster: Pair = (1, 1)
    grouping: str = "cooperative"
    tile_scheduler: str = "data_parallel"
    store: str = "direct"

    pipelines: ClassVar[tuple[str, ...]] = tuple(KINDS)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "grouping": ("cooperative", "pingpong"),
        "tile_scheduler": ("data_parallel", "stream_k", "split_k", "cluster_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @property
    def planes(self) -> bool:
        return KINDS[self.pipeline].planes

    @property
    def swap_ab(self) -> bool:
        return KINDS[self.pipeline].swap_ab

    @property
    def warp_tile(self) -> Shape:
        m, n, k = self.tile
        return (m, 64, k // 4) if self.swap_ab else (64, n, k // 4)

    @property
    def warp_grid(self) -> Shape:
        groups = 1 if self.grouping == "pingpong" else 3 if self.tile[1 if self.swap_ab else 0] == 192 else 2
        return (1, groups, 1) if self.swap_ab else (groups, 1, 1)

    @property
    def product(self) -> TmaWsSchedule:
        return TmaWsSchedule(
            self.tile, self.stages, self.cluster, self.grouping, self.swap_ab, self.tile_scheduler, self.store
        )

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), self.grouping]
        parts += [self.tile_scheduler] if self.tile_scheduler != "data_parallel" else []
        parts += [f"cluster{sizes(self.cluster)}"] if self.cluster != (1, 1) else []
        return "_".join([*parts, f"stages{self.stages}", *(["direct"] if self.store == "direct" else [])])


class PointwiseTmaWs(PointwiseFamily):
    name = "pointwise_tma_ws"
    gemm_family = "tma_ws"
    product = TmaWsSchedule
    schedules = (PointwiseTmaWsSchedule,)
    beside = ("_repack",)

    def schedule_for(self, product: Any, planes: bool) -> PointwiseTmaWsSchedule:
        h: TmaWsSchedule = product
        pipeline = _PIPELINES[Kind(planes, h.swap_ab)]
        return PointwiseTmaWsSchedule(pipeline, h.tile, h.stages, h.cluster, h.grouping, h.tile_scheduler, h.store)

    def wanted(self, product: Any, signature: ConvSignature, wgmma: bool) -> bool:
        return wgmma and (*product.tile[:2], product.cluster) in _KEPT

    def config(self, spec: KernelSpec) -> Fields:
        h: PointwiseTmaWsSchedule = spec.schedule
        return {
            **self.layout_config(spec),
            "pipeline": "tw::Pipeline::tma_ws",
            "tile_m": h.tile[0],
            "tile_n": h.tile[1],
            "stages": h.stages,
            "cluster_m": h.cluster[0],
            "cluster_n": h.cluster[1],
            "pingpong": flag(h.grouping == "pingpong"),
            "swap_ab": flag(h.swap_ab),
            "tma_store": flag(h.store == "tma"),
            "tile_scheduler": f"tw::TileScheduler::{h.tile_scheduler}",
        }


FAMILY = PointwiseTmaWs()
