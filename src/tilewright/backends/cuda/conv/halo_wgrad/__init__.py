"""halo_wgrad: gradients of weights; k is pixels, whose halo tiles serve all taps of a plane.

padded_halo_wgrad: the same in copies, where channels are not contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.conv.copies import WHERE_APART, Needs
from tilewright.backends.cuda.conv.halo import MEMORY as HALO
from tilewright.backends.cuda.conv.halo import MOST_HALO
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, most_processors, named, needs_features
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

MEMORY = Arithmetic("tilewright.backends.cuda.conv.halo_wgrad", "tilewright/cuda/conv/halo_wgrad/memory.h", HALO)


@renamed_fields(
    {"band": "halo_rows"}, {"pipeline": {"band_weight": "halo_wgrad", "padded_band_weight": "padded_halo_wgrad"}}
)
@dataclass(frozen=True, slots=True)
class HaloWgradSchedule:
    """wgrad: a halo tile of x and its pixels of y are loaded once for the taps of a plane, up to nine."""

    pipeline: str = field(default="halo_wgrad", kw_only=True)
    pixels: int  # of a stage
    stages: int
    halo_rows: int  # rows of x there is room for: the pixels of a stage and what taps reach beyond

    pipelines: ClassVar[tuple[str, ...]] = ("halo_wgrad", "padded_halo_wgrad")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def shared_bytes(self) -> int:
        return MEMORY("halo_wgrad_shared_bytes", self.stages, self.halo_rows, self.pixels)

    def label(self) -> str:
        return f"{self.pipeline}_pixels{self.pixels}_stages{self.stages}_halo{self.halo_rows}"


def _halos(signature: ConvSignature, arch: Arch) -> Iterator[HaloWgradSchedule]:
    """Short halo tiles where rows are, long ones where they must be."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (
            HaloWgradSchedule(*numbers) for numbers in ((128, 4, 240), (192, 3, 320), (256, 2, 512), (128, 2, 640))
        )


def _violations(signature: ConvSignature, schedule: HaloWgradSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    yield from needs_features(arch, "halo_wgrad", "wgmma", "tma")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over halo tiles"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.pixels % 64 or not 64 <= h.pixels <= 256 or not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages of {h.pixels} pixels", "use 2 to 8 of 64, 128, 192 or 256")
    if h.halo_rows % 8 or not h.pixels < h.halo_rows <= MOST_HALO:
        yield Violation(
            "nv-halo", f"a halo tile of {h.halo_rows} rows", f"use a multiple of 8 over {h.pixels}, at most {MOST_HALO}"
        )
    if h.shared_bytes > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"halo tiles take {h.shared_bytes} bytes of shared memory", "use fewer")


class HaloWgrad(CudaConvFamily):
    name = "halo_wgrad"
    schedules = (HaloWgradSchedule,)
    host = "HostConvHaloWgrad"
    beside = ("_add",)
    copies: ClassVar[Mapping[str, int]] = {"padded_halo_wgrad": WHERE_APART}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[HaloWgradSchedule]:
        halos = list(_halos(signature, arch))
        yield from halos
        yield from (replace(halo, pipeline="padded_halo_wgrad") for halo in halos)

    def violations(self, signature: ConvSignature, schedule: HaloWgradSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: HaloWgradSchedule = spec.schedule
        more = {"most_processors": most_processors(spec.arch), "copies": self.copies_of(h)}
        return named(h, "pixels", "stages", "halo_rows") | more

    def config(self, spec: KernelSpec) -> Fields:
        return named(spec.schedule, "pixels", "stages", "halo_rows")

    def needs(self, schedule: HaloWgradSchedule) -> Needs:
        return Needs(any_filters=True)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), spec.schedule.shared_bytes)


FAMILY = HaloWgrad()
