"""tma_ws: an implicit GEMM.  TMA traverses pixels (im2col maps) and feeds wgmma.

Channels are contiguous, in multiples of 16 bytes; groups of few channels are `merged` into one, block-diagonal.
padded: the same in copies, of channels or filters that are no whole 8s, memory that is not aligned, channels apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.copies import FILLED_UP, Needs
from tilewright.backends.cuda.conv.resources import Pair, Shape, most_stages, rules, shared_bytes
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, flag, sizes, tile_numbers
from tilewright.backends.cuda.gemm.shared import TILE_SCHEDULERS
from tilewright.backends.cuda.gemm.tma_ws.shape import K_BYTES
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields


@renamed_fields({"dealing": "tile_scheduler"}, {"tile_scheduler": {"tiles": "data_parallel"}})
@dataclass(frozen=True, slots=True)
class ConvTmaWsSchedule:
    """TMA traverses pixels and feeds wgmma, warp-specialised and persistent.

    padded: what is not aligned in copies that are.

    A warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
    """

    pipeline: str
    tile: Shape
    stages: int
    cluster: Pair = (1, 1)  # blocks that share what they fetch, along m and n
    grouping: str = "cooperative"  # warpgroups share a tile, or alternate
    tile_scheduler: str = "data_parallel"  # whole tiles; equal shares of all k-blocks (stream-K); splits of k
    store: str = "direct"  # or tma: results leave through TMA
    merged: bool = False  # groups of few channels, several as one

    pipelines: ClassVar[tuple[str, ...]] = ("tma_ws", "padded")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "grouping": ("cooperative", "pingpong"),
        "tile_scheduler": ("data_parallel", "stream_k", "split_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @property
    def warp_tile(self) -> Shape:
        return (64, self.tile[1], self.tile[2] // 4)

    @property
    def warp_grid(self) -> Shape:
        return (1 if self.grouping == "pingpong" else 2, 1, 1)

    def by_rows(self, signature: ConvSignature) -> bool:
        """Whether rows of results may have any address: backward_data of strides over 1 has such."""
        whole = self.store == "direct" and self.tile_scheduler == "data_parallel"
        return whole and signature.variant == "backward_data" and DTYPES[signature.dtype_out].bytes == 2

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), self.grouping]
        parts += [self.tile_scheduler] if self.tile_scheduler != "data_parallel" else []
        parts += [f"cluster{sizes(self.cluster)}"] if self.cluster != (1, 1) else []
        parts += [f"stages{self.stages}", *(["direct"] if self.store == "direct" else [])]
        return "_".join([*parts, *(["merged"] if self.merged else [])])


# Tile, most stages, cluster, grouping, tile_scheduler.
Tiles = tuple[tuple[int, int, int, Pair, str, str], ...]
_C, _P = "cooperative", "pingpong"
_PIXELS: Tiles = (
    (64, 64, 8, (1, 1), _P, "split_k"),
    (64, 128, 7, (1, 1), _P, "split_k"),
    (128, 64, 8, (1, 1), _P, "data_parallel"),
    (128, 64, 8, (2, 1), _P, "data_parallel"),
    (128, 128, 6, (1, 1), _P, "data_parallel"),
    (128, 128, 6, (2, 1), _P, "data_parallel"),
    (128, 128, 6, (1, 1), _C, "split_k"),
    (128, 192, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (2, 1), _C, "data_parallel"),
    (128, 256, 4, (2, 1), _C, "stream_k"),
    (192, 64, 6, (1, 1), _P, "data_parallel"),
    (256, 64, 5, (1, 1), _C, "data_parallel"),
    (256, 64, 5, (2, 1), _C, "data_parallel"),
    (256, 128, 4, (1, 1), _C, "data_parallel"),
    (256, 128, 4, (2, 1), _C, "data_parallel"),
    (256, 128, 4, (1, 1), _C, "stream_k"),
)
# Columns of filters need not be whole 64s.
_FILTERS: Tiles = (
    (128, 16, 12, (1, 1), _P, "data_parallel"),
    (128, 32, 10, (1, 1), _P, "data_parallel"),
    (128, 96, 7, (1, 1), _P, "data_parallel"),
    (128, 160, 5, (1, 1), _P, "data_parallel"),
    (256, 32, 5, (1, 1), _C, "data_parallel"),
    (256, 96, 5, (1, 1), _C, "data_parallel"),
    (256, 160, 4, (1, 1), _C, "data_parallel"),
)
WEIGHTS: Tiles = (
    (64, 64, 8, (1, 1), _P, "split_k"),
    (64, 128, 7, (1, 1), _P, "split_k"),
    (64, 192, 6, (1, 1), _P, "split_k"),
    (64, 256, 4, (1, 1), _P, "split_k"),
    (128, 64, 8, (1, 1), _C, "split_k"),
    (128, 128, 6, (1, 1), _C, "split_k"),
    (128, 128, 6, (2, 1), _C, "split_k"),
    (128, 192, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "stream_k"),
    (256, 64, 4, (1, 1), _C, "split_k"),
    (256, 128, 4, (1, 1), _C, "split_k"),
    (256, 128, 4, (1, 1), _C, "stream_k"),
)


_PADDED = ((128, 64), (128, 128), (128, 256), (256, 128))  # tiles of kernels that work on copies


def tiled(signature: ConvSignature, tiles: Tiles, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
    """One schedule a tile, results through TMA where it can write them."""
    k = K_BYTES // DTYPES[signature.dtype].bytes
    for m, n, stages, cluster, grouping, tile_scheduler in tiles:
        small = m == (64 if grouping == "pingpong" else 128) and n <= 64  # these leave from the registers
        store = "tma" if DTYPES[signature.dtype_out].bytes == 2 and n % 16 == 0 and not small else "direct"
        schedule = ConvTmaWsSchedule("tma_ws", (m, n, k), stages, cluster, grouping, tile_scheduler, store)
        yield replace(schedule, stages=min(stages, most_stages(signature.variant, schedule, arch.scratch_bytes)))


def _by_classes(
    schedules: Iterator[ConvTmaWsSchedule], signature: ConvSignature, arch: Arch
) -> Iterator[ConvTmaWsSchedule]:
    """backward_data of strides over 1: rows of results have any address, and tiles are whole."""
    seen = set()
    for schedule in schedules:
        direct = replace(schedule, store="direct", tile_scheduler="data_parallel")
        if direct not in seen and direct != schedule:
            seen.add(direct)
            yield direct


def _proposals(signature: ConvSignature, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
    if not {"wgmma", "tma"} <= arch.features or signature.dtype not in ("bf16", "fp16", "int8"):
        return
    if signature.dtype == "int8" and signature.variant != "forward":
        return
    tiles = WEIGHTS if signature.variant == "backward_weight" else _PIXELS
    if signature.variant != "backward_weight":
        tiles = (*tiles, *_FILTERS)
    schedules = list(tiled(signature, tiles, arch))
    if signature.variant == "backward_data":
        schedules += list(_by_classes(iter(schedules), signature, arch))
    yield from schedules
    usual = [
        schedule
        for schedule in schedules
        if schedule.tile[:2] in _PADDED and schedule.cluster == (1, 1) and schedule.tile_scheduler != "stream_k"
    ]
    if signature.dtype == "int8":
        yield from (replace(schedule, pipeline="padded") for schedule in usual)
    else:
        narrow = [
            schedule
            for schedule in schedules
            if schedule.tile[1] in (64, 128) and schedule.cluster == (1, 1) and schedule.tile_scheduler != "stream_k"
        ]
        yield from (replace(schedule, merged=True) for schedule in narrow)
        yield from (replace(schedule, pipeline="padded") for schedule in usual)
        yield from (
            replace(schedule, pipeline="padded", merged=True) for schedule in usual if schedule.tile[:2] == (128, 64)
        )


def tma_ws_violations(
    signature: ConvSignature, variant: str, schedule: ConvTmaWsSchedule, arch: Arch
) -> Iterator[Violation]:
    """Those of the matrix product that `variant` is, and what the directions add."""
    if signature.variant != "forward" and DTYPES[signature.dtype].bytes != 2:
        message = f"{signature.variant} of {signature.dtype}: wgmma reads only two-byte elements across k"
        yield Violation("nv-inputs", message, "use bf16 or fp16, or the loops pipeline")
        return
    if signature.dtype == "fp32":
        yield Violation("nv-inputs", "wgmma does not multiply fp32 exactly", "use the loops pipeline")
        return
    yield from rules(signature, variant, schedule, arch)
    if schedule.by_rows(signature) and schedule.tile[1] % 16:
        yield Violation("nv-columns", f"tile_n {schedule.tile[1]}: rows leave 16 columns at a time", "use whole 16s")
    if signature.variant == "backward_weight" and schedule.tile[1] // schedule.cluster[0] % 64:
        message = f"tile_n {schedule.tile[1]} of a cluster of {schedule.cluster[0]}: columns are loaded 64 at a time"
        yield Violation("nv-columns", message, "use whole 64s of each block")


def tiled_numbers(h: ConvTmaWsSchedule) -> dict[str, int]:
    return tile_numbers(h.tile) | {
        "cluster_m": h.cluster[0], "cluster_n": h.cluster[1], "pingpong": int(h.grouping == "pingpong"),
        "tile_scheduler": TILE_SCHEDULERS[h.tile_scheduler], "tma_store": int(h.store == "tma"),
    }  # fmt: skip


def tma_ws_config(h: ConvTmaWsSchedule) -> Fields:
    return {
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "stages": h.stages,
        "cluster_m": h.cluster[0],
        "cluster_n": h.cluster[1],
        "pingpong": flag(h.grouping == "pingpong"),
        "tma_store": flag(h.store == "tma"),
        "merged": flag(h.merged),
        "tile_scheduler": f"tw::TileScheduler::{h.tile_scheduler}",
    }


def tma_ws_promises(variant: str, h: ConvTmaWsSchedule, arch: str) -> Promises:
    from tilewright.inspect import nvidia

    copies = ("UTMALDG", "UTMASTG") if h.store == "tma" else ("UTMALDG",)
    return Promises(nvidia.WARPGROUP, copies, shared_bytes(variant, h, arch_by_name(arch).scratch_bytes))


class TmaWs(CudaConvFamily):
    name = "tma_ws"
    schedules = (ConvTmaWsSchedule,)
    host = "HostConvTmaWs"
    beside = ("_blocks",)
    copies: ClassVar[Mapping[str, int]] = {"padded": FILLED_UP}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
        return _proposals(signature, arch)

    def violations(self, signature: ConvSignature, schedule: ConvTmaWsSchedule, arch: Arch) -> Iterator[Violation]:
        return tma_ws_violations(signature, signature.variant, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: ConvTmaWsSchedule = spec.schedule
        return tiled_numbers(h) | {"merged": int(h.merged), "copies": self.copies_of(h)}

    def config(self, spec: KernelSpec) -> Fields:
        return tma_ws_config(spec.schedule)

    def needs(self, schedule: ConvTmaWsSchedule) -> Needs:
        return Needs(any_filters=schedule.merged)

    def promises(self, spec: KernelSpec) -> Promises:
        return tma_ws_promises(spec.signature.variant, spec.schedule, spec.arch)


FAMILY = TmaWs()
