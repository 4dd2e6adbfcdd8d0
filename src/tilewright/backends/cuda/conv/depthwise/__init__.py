"""depthwise: a filter for each channel, of any window; threads slide it over pixels in registers.

Channels lie in whole vectors.  padded_depthwise: in copies, where channels lie apart or are no whole 8s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.conv.copies import FILLED_UP, Needs
from tilewright.backends.cuda.conv.shared import MEASURED, CudaConvFamily, Fields, named
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature

WINDOWS, STEPS = (3, 5, 7), (1, 2)


@dataclass(frozen=True, slots=True)
class DepthwiseSchedule:
    """A filter for each channel: threads slide the window over strips of pixels that they keep in registers."""

    pipeline: str = field(default="depthwise", kw_only=True)
    window: int  # its width; 0 is any, a tap at a time
    step: int  # the stride along the width
    pixels: int  # of a strip
    rows: int = 0  # that a square window rolls down, each read once; 0: any height, a row of taps at a time
    vector: int = 4  # channels of a thread; 1 of an odd number

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise", "padded_depthwise")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("window", "rows")

    def label(self) -> str:
        return (
            f"{self.pipeline}_{self.window or 'any'}_step{self.step}_pixels{self.pixels}"
            + (f"_rows{self.rows}" if self.rows else "")
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
    if schedule.window not in (*WINDOWS, *(() if weight else (0,))) or schedule.step not in STEPS:
        message = f"a window of width {schedule.window} that moves {schedule.step} pixels"
        yield Violation("nv-depthwise", message, f"use a width of {WINDOWS} and a step of {STEPS}")
    if schedule.vector not in (1, 2, 4):
        yield Violation("nv-vector", f"{schedule.vector} channels of a thread", "use 2 or 4, or 1 of an odd number")
    if schedule.rows and (schedule.window == 0 or schedule.step != 1):
        yield Violation("nv-depthwise", "only a window that moves pixel by pixel rolls", "use step 1, or rows 0")
    reach = (schedule.pixels - 1) * schedule.step + schedule.window
    if schedule.pixels > 8 or reach > 31:
        yield Violation("nv-registers", f"strips of {schedule.pixels} pixels that meet {reach}", "use shorter strips")
    if weight and schedule.rows and schedule.window == 7 and signature.dtype == "fp32" and arch.capability != MEASURED:
        message = "a window of width 7 that rolls keeps more sums of fp32 than a thread has registers"
        yield Violation("nv-registers", message, "use rows 0")
    if schedule.step > 1 and (schedule.window == 0 or signature.variant == "backward_data"):
        yield Violation("nv-depthwise", "only a window that slides forward has a step", "use step 1")


def _together(spec: KernelSpec) -> int:
    """Blocks of a multiprocessor, at least: what is read is under way long, and sums take registers."""
    h: DepthwiseSchedule = spec.schedule
    weight = spec.signature.variant == "backward_weight"
    if arch_by_name(spec.arch).capability == MEASURED:  # as many as were fastest there, though a few spill
        return 4 if h.rows == 0 else 2 if weight and h.window**2 * h.vector > 64 else 3
    return 2 if h.rows or h.window == 7 or (weight and h.window == 5) else 3


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
            if strip.window == 0 or strip.rows == 14 or (strip.pixels == 4 and not strip.rows):
                yield replace(strip, pipeline="padded_depthwise")

    def violations(self, signature: ConvSignature, schedule: DepthwiseSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {**self._sizes(spec), "copies": self.copies_of(spec.schedule)}

    def config(self, spec: KernelSpec) -> Fields:
        # Its kernels of older archs cannot wait for the kernel before them.
        one_by_one = (arch_by_name(spec.arch).capability or (0, 0)) < (9, 0)
        more = {"together": _together(spec), **({"one_by_one": "true"} if one_by_one else {})}
        return {**self._sizes(spec), **more}

    def _sizes(self, spec: KernelSpec) -> dict[str, int]:
        return named(spec.schedule, "window", "step", "pixels", "rows", "vector")

    def needs(self, schedule: DepthwiseSchedule) -> Needs:
        return Needs(whole_groups=True, any_filters=True)


FAMILY = Depthwise()
