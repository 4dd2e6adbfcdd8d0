"""first_weight: gradients of weights of few channels; lines of a row of x are operands as they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, most_processors, named, needs_features
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature


@dataclass(frozen=True, slots=True)
class FirstWeightSchedule:
    """Gradients of weights of few channels: lines of 16 bytes of x are operands for all rows of the window."""

    pipeline: str = field(default="first_weight", init=False)
    window: int  # its rows
    lines: int  # of 16 bytes of a row of the window, that each of two warpgroups sums
    stages: int

    pipelines: ClassVar[tuple[str, ...]] = ("first_weight",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"first_weight_{self.window}_lines{self.lines}_stages{self.stages}"


WINDOWS = (3, 5, 7)


def _proposals(signature: ConvSignature, arch: Arch) -> Iterator[FirstWeightSchedule]:
    """Windows that move by one pixel, of eight channels, and by two, of four."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (FirstWeightSchedule(*numbers) for numbers in ((3, 2, 3), (5, 3, 3), (7, 2, 3), (7, 4, 3)))


def _violations(signature: ConvSignature, schedule: FirstWeightSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    yield from needs_features(arch, "first_weight", "wgmma", "tma")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} by lines of 16 bytes"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.window not in WINDOWS:
        yield Violation("nv-first", f"a window of {h.window} rows", f"use one of {WINDOWS}")
    if not 1 <= h.lines * h.window <= 28:
        message = f"{h.lines} lines of {h.window} rows are more than the registers of a warpgroup hold"
        yield Violation("nv-registers", message, "use at most 28 lines and rows together")
    if not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages", "use 2 to 8")


class FirstWeight(CudaConvFamily):
    name = "first_weight"
    schedules = (FirstWeightSchedule,)
    host = "HostConvFirstWeight"
    beside = ("_add",)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[FirstWeightSchedule]:
        return _proposals(signature, arch)

    def violations(self, signature: ConvSignature, schedule: FirstWeightSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        more = {"most_processors": most_processors(spec.arch), "shared_bytes": arch_by_name(spec.arch).scratch_bytes}
        return named(spec.schedule, "window", "lines", "stages") | more

    def config(self, spec: KernelSpec) -> Fields:
        return named(spec.schedule, "window", "lines", "stages")

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",))


FAMILY = FirstWeight()
