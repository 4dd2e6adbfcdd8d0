"""depthwise: a filter for each channel, of any size; threads slide it over pixels in registers.

Channels are whole vectors.  padded_depthwise: in copies, where they are not contiguous or no whole 8s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.conv.copies import FILLED_UP, Needs
from tilewright.backends.cuda.conv.shared import MEASURED, CudaConvFamily, Fields, named
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

WINDOWS, STEPS = (3, 5, 7), (1, 2)


@renamed_fields({"window": "filter_size", "step": "stride", "rows": "rolling_rows"})
@dataclass(frozen=True, slots=True)
class DepthwiseSchedule:
    """A filter for each channel: threads slide the filter over strips of pixels that they keep in registers."""

    pipeline: str = field(default="depthwise", kw_only=True)
    filter_size: int  # the width of the filter; 0 is any, a tap at a time
    stride: int  # along the width
    pixels: int  # of a strip
    rolling_rows: int = (
        0  # of a strip that a square filter rolls down, each read once; 0: any height, a row of taps at a time
    )
    vector: int = 4  # channels of a thread; 1 of an odd number

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise", "padded_depthwise")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("filter_size", "rolling_rows")

    def label(self) -> str:
        return (
            f"{self.pipeline}_{self.filter_size or 'any'}_stride{self.stride}_pixels{self.pixels}"
            + (f"_rolling{self.rolling_rows}" if self.rolling_rows else "")
            + ("_single" if self.vector == 1 else "")
        )


def _strips(signature: ConvSignature) -> Iterator[DepthwiseSchedule]:
    """Short strips, and such as divide the sizes of usual networks; beside wide windows fewer channels fit."""
    if signature.dtype == "int8":
        return
    weight = signature.variant == "backward_weight"
    for window in WINDOWS:
        for step in STEPS if signature.variant != "backward_data" else (1,):
            for pixels in (4, 7) if step == 1 else (4,):
                yield DepthwiseSchedule(window, step, pixels)
        for rows in (7, 14, 28):
            yield DepthwiseSchedule(window, 1, 7, rows, 4 if window == 3 else 2)
    if not weight:
        yield DepthwiseSchedule(0, 1, 2)
    for window, step in product(WINDOWS, STEPS if signature.variant != "backward_data" else (1,)):
        yield DepthwiseSchedule(window, step, 7 if step == 1 else 4, vector=1)
    if not weight:
        yield DepthwiseSchedule(0, 1, 2, vector=1)


def _violations(signature: ConvSignature, schedule: DepthwiseSchedule, arch: Arch) -> Iterator[Violation]:
    weight = signature.variant == "backward_weight"
    if signature.dtype == "int8":
        yield Violation("nv-inputs", "the depthwise pipeline multiplies floats", "use the loops pipeline")
    if schedule.filter_size not in (*WINDOWS, *(() if weight else (0,))) or schedule.stride not in STEPS:
        message = f"a filter of width {schedule.filter_size} and stride {schedule.stride}"
        yield Violation("nv-depthwise", message, f"use a width of {WINDOWS} and a stride of {STEPS}")
    if schedule.vector not in (1, 2, 4):
        yield Violation(
            "nv-vector", f"{schedule.vector} channels per thread", "use 2 or 4, or 1 for an odd number of channels"
        )
    if schedule.rolling_rows and (schedule.filter_size == 0 or schedule.stride != 1):
        yield Violation("nv-depthwise", "a rolling window has stride 1", "use stride 1, or rolling_rows 0")
    reach = (schedule.pixels - 1) * schedule.stride + schedule.filter_size
    if schedule.pixels > 8 or reach > 31:
        yield Violation(
            "nv-registers", f"strips of {schedule.pixels} pixels that read {reach} pixels each", "use shorter strips"
        )
    if (
        weight
        and schedule.rolling_rows
        and schedule.filter_size == 7
        and signature.dtype == "fp32"
        and arch.capability != MEASURED
    ):
        message = "a rolling window of width 7 keeps more fp32 accumulators than a thread has registers"
        yield Violation("nv-registers", message, "use rolling_rows 0")
    if schedule.stride > 1 and (schedule.filter_size == 0 or signature.variant == "backward_data"):
        yield Violation("nv-depthwise", "only forward kernels of a fixed filter size have a stride", "use stride 1")


def _ctas_per_sm(spec: KernelSpec) -> int:
    """Blocks of a multiprocessor, at least: loads have a long latency, and accumulators take registers."""
    h: DepthwiseSchedule = spec.schedule
    weight = spec.signature.variant == "backward_weight"
    if arch_by_name(spec.arch).capability == MEASURED:  # as many as were fastest there, though a few spill
        return 4 if h.rolling_rows == 0 else 2 if weight and h.filter_size**2 * h.vector > 64 else 3
    return 2 if h.rolling_rows or h.filter_size == 7 or (weight and h.filter_size == 5) else 3


class Depthwise(CudaConvFamily):
    name = "depthwise"
    schedules = (DepthwiseSchedule,)
    host = "HostConvDepthwise"
    beside = ("_add",)
    copies: ClassVar[Mapping[str, int]] = {"padded_depthwise": FILLED_UP}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseSchedule]:
        strips = list(_strips(signature))
        yield from strips
        if "tma" not in arch.features:
            return
        for strip in strips:
            if strip.filter_size == 0 or strip.rolling_rows == 14 or (strip.pixels == 4 and not strip.rolling_rows):
                yield replace(strip, pipeline="padded_depthwise")

    def violations(self, signature: ConvSignature, schedule: DepthwiseSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {**self._sizes(spec), "copies": self.copies_of(spec.schedule)}

    def config(self, spec: KernelSpec) -> Fields:
        # Its kernels of older archs cannot wait for the kernel before them.
        one_by_one = (arch_by_name(spec.arch).capability or (0, 0)) < (9, 0)
        more = {"ctas_per_sm": _ctas_per_sm(spec), **({"one_by_one": "true"} if one_by_one else {})}
        return {**self._sizes(spec), **more}

    def _sizes(self, spec: KernelSpec) -> dict[str, int]:
        return named(spec.schedule, "filter_size", "stride", "pixels", "rolling_rows", "vector")

    def needs(self, schedule: DepthwiseSchedule) -> Needs:
        return Needs(whole_groups=True, any_filters=True)


FAMILY = Depthwise()
