"""GEMM on AMD GPUs, rcr: a wave for each element of the result, its lanes along k."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelFamily, KernelsDefaults
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.families import ScheduleDefaults
from tilewright.ops.gemm import GemmProblem, GemmSignature
from tilewright.ops.gemm.family import GemmFamily

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WaveDotSchedule(ScheduleDefaults):
    pipeline: str = field(default="wave_dot", init=False)
    waves: int  # of a workgroup

    pipelines: ClassVar[tuple[str, ...]] = ("wave_dot",)
    warp_tile: ClassVar[Shape] = (1, 1, 1)
    warp_grid: ClassVar[Shape] = (1, 1, 1)
    tile: ClassVar[Shape] = (1, 1, 1)

    def label(self) -> str:
        return f"wave_dot{self.waves}"


class WaveDot(KernelsDefaults, GemmFamily):
    schedules: tuple[type[Any], ...] = (WaveDotSchedule,)
    template = ("extrafamilies", "templates/wave_dot.hpp.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[WaveDotSchedule]:
        if signature.layout == "rcr" and signature.variant == "standard":
            yield WaveDotSchedule(waves=4)

    def violations(self, signature: GemmSignature, schedule: WaveDotSchedule, arch: Arch) -> Iterator[Violation]:
        if signature.layout != "rcr" or signature.variant != "standard" or signature.dtype_acc != "fp32":
            message = f"{signature.label()} is not a plain product of floats in rcr"
            yield Violation("wave-dot-signature", message, "use another kernel")
        most = arch.max_threads // arch.warp_size
        if schedule.waves > most:
            message = f"{schedule.waves} waves of {arch.warp_size} lanes"
            yield Violation("wave-dot-waves", message, f"use {most} or fewer")

    def limits(self, spec: KernelSpec, problem: GemmProblem) -> Iterator[Violation]:
        yield from super().limits(spec, problem)
        if problem.batch != 1:
            yield Violation("wave-dot-batch", f"a batch of {problem.batch}", "call it once a matrix")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {"lanes": arch_by_name(spec.arch).warp_size}

    def include_dirs(self) -> tuple[Path, ...]:
        return (Path(__file__).parent / "include",)

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return float(6e-6 + problem.flops / 1e11)


FAMILY: KernelFamily = WaveDot()
