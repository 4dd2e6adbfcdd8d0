"""depthwise_tile: a filter for each channel; warps slide square filters over tiles that TMA loads.

padded_depthwise_tile: in copies, where channels are not contiguous or no whole 8s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.copies import FILLED_UP, Needs
from tilewright.backends.cuda.conv.depthwise import STEPS, WINDOWS
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, named, needs_features
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields


@renamed_fields(
    {"window": "filter_size", "step": "stride", "pixels": "tile_w", "lines": "tile_h", "spread": "dilation"}
)
@dataclass(frozen=True, slots=True)
class DepthwiseTileSchedule:
    """A filter for each channel: warps slide a square filter over tiles of shared memory, with padding in them."""

    pipeline: str = field(default="depthwise_tile", kw_only=True)
    filter_size: int  # width and height of the filter
    stride: int  # along both
    tile_w: int  # results of a unit, across
    tile_h: int  # and down
    channels: int = 64  # of a tile
    dilation: int = 1  # along both

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise_tile", "padded_depthwise_tile")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        label = f"{self.pipeline}_{self.filter_size}_stride{self.stride}_{self.tile_h}x{self.tile_w}"
        label += f"_channels{self.channels}"
        return label + (f"_dilation{self.dilation}" if self.dilation > 1 else "")


def _tiles(signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseTileSchedule]:
    """Units that divide the sizes of usual networks, and such of powers of two."""
    if "tma" not in arch.features or DTYPES[signature.dtype].bytes != 2:
        return
    data, weight = signature.variant == "backward_data", signature.variant == "backward_weight"
    for window in WINDOWS:
        for step in STEPS if not data else (1,):
            for pixels, channels in product((7,) if weight and window == 7 else (7, 8), (32, 64)):
                yield DepthwiseTileSchedule(window, step, pixels, 2, channels)
        if data:
            yield from (DepthwiseTileSchedule(window, 2, 7, 1, channels) for channels in (32, 64))
        yield DepthwiseTileSchedule(window, 1, 7, 1 if weight and window == 7 else 2, 64, 2)
        if weight:  # strips slide over neither
            yield DepthwiseTileSchedule(window, 2, 7 if window < 7 else 4, 1, 64, 2)


def _violations(signature: ConvSignature, schedule: DepthwiseTileSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    yield from needs_features(arch, "depthwise_tile", "tma")
    if DTYPES[signature.dtype].bytes != 2:
        message = f"tiles have two-byte elements, not {signature.dtype}"
        yield Violation("nv-inputs", message, "use bf16 or fp16, or the depthwise pipeline")
    if h.filter_size not in WINDOWS or h.stride not in STEPS:
        message = f"a filter of {h.filter_size} and stride {h.stride}"
        yield Violation("nv-depthwise", message, f"use a filter of {WINDOWS} and a stride of {STEPS}")
    strided = h.stride if signature.variant == "backward_data" else 1  # results along a stride are made together
    if strided > 1 and h.dilation > 1:
        yield Violation(
            "nv-depthwise", "backward_data with a stride and a dilation over 1", "use stride 1 or dilation 1"
        )
    if h.dilation > 2:
        yield Violation("nv-depthwise", f"a dilation of {h.dilation}", "use 1 or 2, or the depthwise pipeline")
    if h.channels not in (32, 64):
        yield Violation("nv-vector", f"{h.channels} channels per tile", "use 32 or 64")
    kept = h.filter_size**2 if signature.variant == "backward_weight" else 0
    if not (
        h.tile_w <= 8 and h.tile_h <= 4 and h.tile_w * h.tile_h * strided**2 + kept <= (72 if strided == 1 else 32)
    ):
        yield Violation(
            "nv-registers", f"units of {h.tile_h}x{h.tile_w} of a filter of {h.filter_size}", "use smaller units"
        )


class DepthwiseTile(CudaConvFamily):
    name = "depthwise_tile"
    schedules = (DepthwiseTileSchedule,)
    host = "HostConvDepthwiseTile"
    beside = ("_add",)
    copies: ClassVar[Mapping[str, int]] = {"padded_depthwise_tile": FILLED_UP}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseTileSchedule]:
        tiles = list(_tiles(signature, arch))
        yield from tiles
        flat = signature.spatial == 2 or signature.variant != "backward_data"  # gradients of strides: one plane
        for tile in tiles:
            if tile.tile_w < 8 and (flat or tile.stride == 1):
                yield replace(tile, pipeline="padded_depthwise_tile")

    def violations(self, signature: ConvSignature, schedule: DepthwiseTileSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: DepthwiseTileSchedule = spec.schedule
        more = {"tile_channels": h.channels, "shared_bytes": arch_by_name(spec.arch).scratch_bytes}
        return named(h, "filter_size", "stride", "tile_w", "tile_h", "dilation") | more | {"copies": self.copies_of(h)}

    def config(self, spec: KernelSpec) -> Fields:
        return named(spec.schedule, "filter_size", "stride", "dilation", "tile_w", "tile_h", "channels")

    def needs(self, schedule: DepthwiseTileSchedule) -> Needs:
        return Needs(whole_groups=True, any_filters=True)

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(copies=("UTMALDG",))


FAMILY = DepthwiseTile()
