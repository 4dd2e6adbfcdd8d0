"""halo: tma_ws of filters of stride 1, whose halo tiles are loaded once for all filter taps.

padded_halo: the same in copies, where channels are not contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
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
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

MOST_HALO = 1024  # pixels of one traversal


@renamed_fields({"band": "halo_rows"}, {"pipeline": {"band": "halo", "padded_band": "padded_halo"}})
@dataclass(frozen=True, slots=True)
class HaloSchedule:
    """Halo tiles are loaded once for all taps of a filter of stride 1; consumer warpgroups alternate."""

    pipeline: str = field(default="halo", kw_only=True)
    tile: Shape
    stages: int  # halo tiles under way
    halo_rows: int  # rows there is room for: those of a tile and what taps reach beyond
    taps: int  # whose weights are in shared memory
    merged: bool = False  # groups of few channels, several as one
    slice: int = 0  # of merged groups: columns that 16 of k have, so that only these are multiplied; 0 is all
    sharing: int = 1  # and how many 16s have the same

    pipelines: ClassVar[tuple[str, ...]] = ("halo", "padded_halo")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("slice",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = (1, 1, 1)

    @property
    def warp_tile(self) -> Shape:
        return (64, self.tile[1], 16)

    def label(self) -> str:
        label = f"{self.pipeline}_{sizes(self.tile)}_stages{self.stages}_halo{self.halo_rows}_taps{self.taps}"
        return label + ("_merged" if self.merged else "") + (f"_slice{self.slice}x{self.sharing}" if self.slice else "")


MEMORY = Arithmetic("tilewright.backends.cuda.conv.halo", "tilewright/cuda/conv/halo/memory.h", TMA_WS)


def halo_shared_bytes(signature: ConvSignature, schedule: HaloSchedule) -> int:
    h, lines = schedule, signature.variant != "forward"
    return MEMORY("halo_shared_bytes", h.stages, h.halo_rows, h.taps, h.tile[1], lines)


def _halos(signature: ConvSignature, arch: Arch) -> Iterator[HaloSchedule]:
    """Nine taps that stay, or a ring of fewer and wider ones; of merged groups in slices too."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant == "backward_weight":
        return
    if {DTYPES[signature.dtype].bytes, DTYPES[signature.dtype_out].bytes} != {2}:
        return
    for m, n, stages, halo, taps in (
        (128, 64, 3, 320, 9),
        (192, 64, 2, 480, 9),
        (256, 64, 2, 480, 9),
        (128, 128, 2, 512, 4),
        (128, 128, 3, 336, 4),
    ):
        schedule = HaloSchedule((m, n, 64), stages, halo, taps)
        yield schedule
        yield replace(schedule, tile=(m, n, 32))  # few channels
        yield replace(schedule, merged=True)
        for slice_, sharing in ((16, 1), (32, 2)) if n == 64 else ((32, 1),):
            yield replace(schedule, merged=True, slice=slice_, sharing=sharing)
    for m, deep in product((192, 256), (64, 32)):  # wide images, and wide windows
        yield HaloSchedule((m, 64, deep), 2, 640, 4)


def _violations(signature: ConvSignature, schedule: HaloSchedule, arch: Arch) -> Iterator[Violation]:
    yield from needs_features(arch, "halo", "wgmma", "tma")
    if signature.variant == "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over halo tiles"
        yield Violation("nv-inputs", message, "use forward or backward_data of bf16 or fp16, or another pipeline")
    elif DTYPES[signature.dtype_out].bytes != 2:
        yield Violation(
            "nv-outputs", f"the halo pipeline stores two-byte types, not {signature.dtype_out}", "use bf16 or fp16"
        )
    m, n, k = schedule.tile
    if m not in (64, 128, 192, 256) or n % 16 or n > 256 or k not in (32, 64) or m // 64 * n // 2 > MAX_ACCUMULATORS:
        yield Violation(
            "nv-tile-m",
            f"tile {m}x{n}x{k}",
            "use a tile_m of 64, 128, 192 or 256, a multiple of 16 as tile_n, and a tile_k of 32 or 64",
        )
    if k == 32 and schedule.merged:
        yield Violation("nv-halo", "merged groups fill a stage of 64 channels", "use tile_k 64")
    if n not in WGMMA_COLUMNS:
        yield Violation("nv-columns", f"tile_n {n} is not an n that one wgmma can have", "use 64")
    if schedule.halo_rows % 8 or schedule.halo_rows <= m or schedule.halo_rows > MOST_HALO:
        yield Violation(
            "nv-halo", f"a halo tile of {schedule.halo_rows} rows", f"use a multiple of 8 over {m}, at most {MOST_HALO}"
        )
    if schedule.slice and not (
        schedule.merged and schedule.slice in WGMMA_COLUMNS and schedule.slice * 4 == n * schedule.sharing
    ):
        message = f"slices of {schedule.slice} columns, shared by {schedule.sharing} k-steps of 16, in a tile_n of {n}"
        yield Violation("nv-slice", message, "use merged groups, and slices with slice * 4 == tile_n * sharing")
    elif schedule.slice and signature.variant == "backward_data" and 64 % schedule.slice and schedule.slice % 64:
        message = f"slices of {schedule.slice} columns cross the 64 that are contiguous"
        yield Violation("nv-slice", message, "use slices of 16, 32 or a multiple of 64 columns")
    if 16 * (schedule.stages + schedule.taps) > MEMORY("halo_barriers"):
        yield Violation("nv-stages", f"{schedule.stages} halo tiles and {schedule.taps} taps", "use at most 40 in all")
    shared = halo_shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"halo tiles and taps take {shared} bytes of shared memory", "use fewer")


class Halo(CudaConvFamily):
    name = "halo"
    schedules = (HaloSchedule,)
    host = "HostConvHalo"
    beside = ("_blocks",)
    copies: ClassVar[Mapping[str, int]] = {"padded_halo": WHERE_APART}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[HaloSchedule]:
        halos = list(_halos(signature, arch))
        yield from halos
        for halo in halos:
            if halo.tile[0] != 192 and not (halo.slice and signature.spatial == 3):  # slices take one halo tile a tile
                yield replace(halo, pipeline="padded_halo")

    def violations(self, signature: ConvSignature, schedule: HaloSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: HaloSchedule = spec.schedule
        more = named(h, "stages", "halo_rows", "taps", "slice", "sharing", "merged")
        return tile_numbers(h.tile) | more | {"copies": self.copies_of(h)}

    def config(self, spec: KernelSpec) -> Fields:
        h: HaloSchedule = spec.schedule
        walk = ConvTmaWsSchedule("tma_ws", h.tile, h.stages, grouping="pingpong", merged=h.merged)
        more = {"deep": h.tile[2], **named(h, "halo_rows", "taps", "slice", "sharing")}
        return {**tma_ws_config(walk), **more}

    def needs(self, schedule: HaloSchedule) -> Needs:
        return Needs(any_filters=schedule.merged)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), halo_shared_bytes(spec.signature, spec.schedule))


FAMILY = Halo()
