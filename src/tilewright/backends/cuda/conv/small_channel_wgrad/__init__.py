"""small_channel_wgrad: gradients of weights of few channels; lines of a row of x are operands in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, most_processors, named, needs_features
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields


@renamed_fields({"window": "filter_rows"}, {"pipeline": {"first_weight": "small_channel_wgrad"}})
@dataclass(frozen=True, slots=True)
class SmallChannelWgradSchedule:
    """Gradients of weights of few channels: lines of 16 bytes of x are operands for all rows of the filter."""

    pipeline: str = field(default="small_channel_wgrad", init=False)
    filter_rows: int
    lines: int  # of 16 bytes of a row of the filter, that each of two warpgroups sums
    stages: int

    pipelines: ClassVar[tuple[str, ...]] = ("small_channel_wgrad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"small_channel_wgrad_{self.filter_rows}_lines{self.lines}_stages{self.stages}"


WINDOWS = (3, 5, 7)


def _proposals(signature: ConvSignature, arch: Arch) -> Iterator[SmallChannelWgradSchedule]:
    """Filters of stride 1, of eight channels, and of stride 2, of four."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (SmallChannelWgradSchedule(*numbers) for numbers in ((3, 2, 3), (5, 3, 3), (7, 2, 3), (7, 4, 3)))


def _violations(signature: ConvSignature, schedule: SmallChannelWgradSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    yield from needs_features(arch, "small_channel_wgrad", "wgmma", "tma")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} by lines of 16 bytes"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.filter_rows not in WINDOWS:
        yield Violation("nv-small-channel", f"a filter of {h.filter_rows} rows", f"use one of {WINDOWS}")
    if not 1 <= h.lines * h.filter_rows <= 28:
        message = f"{h.lines} lines of {h.filter_rows} rows are more than the registers of a warpgroup hold"
        yield Violation("nv-registers", message, "use at most 28 lines and rows together")
    if not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages", "use 2 to 8")


class SmallChannelWgrad(CudaConvFamily):
    name = "small_channel_wgrad"
    schedules = (SmallChannelWgradSchedule,)
    host = "HostConvSmallChannelWgrad"
    beside = ("_add",)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[SmallChannelWgradSchedule]:
        return _proposals(signature, arch)

    def violations(
        self, signature: ConvSignature, schedule: SmallChannelWgradSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        more = {"most_processors": most_processors(spec.arch), "shared_bytes": arch_by_name(spec.arch).scratch_bytes}
        return named(spec.schedule, "filter_rows", "lines", "stages") | more

    def config(self, spec: KernelSpec) -> Fields:
        return named(spec.schedule, "filter_rows", "lines", "stages")

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",))


FAMILY = SmallChannelWgrad()
