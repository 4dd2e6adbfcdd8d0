"""band: tma_ws of a window that moves pixel by pixel, whose bands of pixels are fetched once for all its taps.

padded_band: the same in copies, where channels lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.conv.copies import WHERE_APART, Needs
from tilewright.backends.cuda.conv.resources import MAX_ACCUMULATORS, WGMMA_COLUMNS, Shape
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, named, needs_features, sizes, tile_numbers
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule, tma_ws_config
from tilewright.backends.cuda.gemm.tma_ws.shape import MEMORY as TMA_WS
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

MOST_BAND = 1024  # pixels of one walk


@dataclass(frozen=True, slots=True)
class BandSchedule:
    """Bands of pixels are fetched once for all taps of a window that moves pixel by pixel; warpgroups take turns."""

    pipeline: str = field(default="band", kw_only=True)
    tile: Shape
    stages: int  # bands under way
    band: int  # rows there is room for: those of a tile and what taps reach beyond
    taps: int  # whose weights are in shared memory
    merged: bool = False  # groups of few channels, several as one
    slice: int = 0  # of merged groups: columns that 16 of k have, so that only these are multiplied; 0 is all
    sharing: int = 1  # and how many 16s have the same

    pipelines: ClassVar[tuple[str, ...]] = ("band", "padded_band")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("slice",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = (1, 1, 1)

    @property
    def warp_tile(self) -> Shape:
        return (64, self.tile[1], 16)

    def label(self) -> str:
        label = f"{self.pipeline}_{sizes(self.tile)}_stages{self.stages}_band{self.band}_taps{self.taps}"
        return label + ("_merged" if self.merged else "") + (f"_slice{self.slice}x{self.sharing}" if self.slice else "")


MEMORY = Arithmetic("tilewright.backends.cuda.conv.band", "tilewright/cuda/conv/band/memory.h", TMA_WS)


def band_shared_bytes(signature: ConvSignature, schedule: BandSchedule) -> int:
    h, lines = schedule, signature.variant != "forward"
    return MEMORY("band_shared_bytes", h.stages, h.band, h.taps, h.tile[1], lines)


def _bands(signature: ConvSignature, arch: Arch) -> Iterator[BandSchedule]:
    """Nine taps that stay, or a ring of fewer and wider ones; of merged groups in slices too."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant == "backward_weight":
        return
    if {DTYPES[signature.dtype].bytes, DTYPES[signature.dtype_out].bytes} != {2}:
        return
    for m, n, stages, band, taps in (
        (128, 64, 3, 320, 9),
        (192, 64, 2, 480, 9),
        (256, 64, 2, 480, 9),
        (128, 128, 2, 512, 4),
        (128, 128, 3, 336, 4),
    ):
        schedule = BandSchedule((m, n, 64), stages, band, taps)
        yield schedule
        yield replace(schedule, tile=(m, n, 32))  # few channels
        yield replace(schedule, merged=True)
        for slice_, sharing in ((16, 1), (32, 2)) if n == 64 else ((32, 1),):
            yield replace(schedule, merged=True, slice=slice_, sharing=sharing)
    for m, deep in product((192, 256), (64, 32)):  # wide images, and wide windows
        yield BandSchedule((m, 64, deep), 2, 640, 4)


def _violations(signature: ConvSignature, schedule: BandSchedule, arch: Arch) -> Iterator[Violation]:
    yield from needs_features(arch, "band", "wgmma", "tma")
    if signature.variant == "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over bands"
        yield Violation("nv-inputs", message, "use forward or backward_data of bf16 or fp16, or another pipeline")
    elif DTYPES[signature.dtype_out].bytes != 2:
        yield Violation("nv-outputs", f"bands leave as two bytes, not {signature.dtype_out}", "use bf16 or fp16")
    m, n, k = schedule.tile
    if m not in (64, 128, 192, 256) or n % 16 or n > 256 or k not in (32, 64) or m // 64 * n // 2 > MAX_ACCUMULATORS:
        yield Violation(
            "nv-tile-m", f"tile {m}x{n}x{k}", "use 64, 128 or 192 rows, whole 16s of columns, 32 or 64 of k"
        )
    if k == 32 and schedule.merged:
        yield Violation("nv-band", "merged groups fill a stage, which has 64 channels", "use 64 of k")
    if n not in WGMMA_COLUMNS:
        yield Violation("nv-columns", f"tile_n {n} is not one wgmma wide", "use 64")
    if schedule.band % 8 or schedule.band <= m or schedule.band > MOST_BAND:
        yield Violation("nv-band", f"a band of {schedule.band} rows", f"use whole 8s over {m}, at most {MOST_BAND}")
    if schedule.slice and not (
        schedule.merged and schedule.slice in WGMMA_COLUMNS and schedule.slice * 4 == n * schedule.sharing
    ):
        message = f"slices of {schedule.slice} columns, {schedule.sharing} the same, in {n}"
        yield Violation("nv-slice", message, "use merged groups, and slices that four 16s of k fill the tile with")
    elif schedule.slice and signature.variant == "backward_data" and 64 % schedule.slice and schedule.slice % 64:
        message = f"slices of {schedule.slice} columns begin and end within 64 that lie side by side"
        yield Violation("nv-slice", message, "use slices of 16, 32 or whole 64s of columns")
    if 16 * (schedule.stages + schedule.taps) > MEMORY("band_barriers"):
        yield Violation("nv-stages", f"{schedule.stages} bands and {schedule.taps} taps", "use at most 40 together")
    shared = band_shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"bands and taps take {shared} bytes of shared memory", "use fewer")


class Band(CudaConvFamily):
    name = "band"
    schedules = (BandSchedule,)
    host = "HostConvBand"
    beside = ("_blocks",)
    copies: ClassVar[Mapping[str, int]] = {"padded_band": WHERE_APART}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[BandSchedule]:
        bands = list(_bands(signature, arch))
        yield from bands
        for band in bands:
            if band.tile[0] != 192 and not (band.slice and signature.spatial == 3):  # slices take one band a tile
                yield replace(band, pipeline="padded_band")

    def violations(self, signature: ConvSignature, schedule: BandSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: BandSchedule = spec.schedule
        more = named(h, "stages", "band", "taps", "slice", "sharing", "merged")
        return tile_numbers(h.tile) | more | {"copies": self.copies_of(h)}

    def config(self, spec: KernelSpec) -> Fields:
        h: BandSchedule = spec.schedule
        walk = ConvTmaWsSchedule("tma_ws", h.tile, h.stages, grouping="pingpong", merged=h.merged)
        more = {"deep": h.tile[2], **named(h, "band", "taps", "slice", "sharing")}
        return {**tma_ws_config(walk), **more}

    def needs(self, schedule: BandSchedule) -> Needs:
        return Needs(any_filters=schedule.merged)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), band_shared_bytes(spec.signature, spec.schedule))


FAMILY = Band()
