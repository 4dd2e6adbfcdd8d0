"""band_weight: gradients of weights; k is pixels, whose bands serve all taps of a plane.

padded_band_weight: the same in copies, where channels lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.conv.band import MEMORY as BAND
from tilewright.backends.cuda.conv.band import MOST_BAND
from tilewright.backends.cuda.conv.copies import WHERE_APART, Needs
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, most_processors, named, needs_features
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature

MEMORY = Arithmetic("tilewright.backends.cuda.conv.band_weight", "tilewright/cuda/conv/band_weight/memory.h", BAND)


@dataclass(frozen=True, slots=True)
class BandWeightSchedule:
    """Gradients of weights: a band of x and its pixels of y are fetched once for the taps of a plane, up to nine."""

    pipeline: str = field(default="band_weight", kw_only=True)
    pixels: int  # of a stage
    stages: int
    band: int  # rows of x there is room for: the pixels of a stage and what taps reach beyond

    pipelines: ClassVar[tuple[str, ...]] = ("band_weight", "padded_band_weight")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def shared_bytes(self) -> int:
        return MEMORY("band_weight_shared_bytes", self.stages, self.band, self.pixels)

    def label(self) -> str:
        return f"{self.pipeline}_pixels{self.pixels}_stages{self.stages}_band{self.band}"


def _bands(signature: ConvSignature, arch: Arch) -> Iterator[BandWeightSchedule]:
    """Short bands where rows are, long ones where they must be."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (
            BandWeightSchedule(*numbers) for numbers in ((128, 4, 240), (192, 3, 320), (256, 2, 512), (128, 2, 640))
        )


def _violations(signature: ConvSignature, schedule: BandWeightSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    yield from needs_features(arch, "band_weight", "wgmma", "tma")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over bands"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.pixels % 64 or not 64 <= h.pixels <= 256 or not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages of {h.pixels} pixels", "use 2 to 8 of 64, 128, 192 or 256")
    if h.band % 8 or not h.pixels < h.band <= MOST_BAND:
        yield Violation("nv-band", f"a band of {h.band} rows", f"use whole 8s over {h.pixels}, at most {MOST_BAND}")
    if h.shared_bytes > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"bands take {h.shared_bytes} bytes of shared memory", "use fewer")


class BandWeight(CudaConvFamily):
    name = "band_weight"
    schedules = (BandWeightSchedule,)
    host = "HostConvBandWeight"
    beside = ("_add",)
    copies: ClassVar[Mapping[str, int]] = {"padded_band_weight": WHERE_APART}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[BandWeightSchedule]:
        bands = list(_bands(signature, arch))
        yield from bands
        yield from (replace(band, pipeline="padded_band_weight") for band in bands)

    def violations(self, signature: ConvSignature, schedule: BandWeightSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: BandWeightSchedule = spec.schedule
        more = {"most_processors": most_processors(spec.arch), "copies": self.copies_of(h)}
        return named(h, "pixels", "stages", "band") | more

    def config(self, spec: KernelSpec) -> Fields:
        return named(spec.schedule, "pixels", "stages", "band")

    def needs(self, schedule: BandWeightSchedule) -> Needs:
        return Needs(any_filters=True)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), spec.schedule.shared_bytes)


FAMILY = BandWeight()
