"""GEMM on NVIDIA GPUs, rcr: a warp for each element of the result, its lanes along k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import KernelFamily, KernelsDefaults
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.families import ScheduleDefaults
from tilewright.ops.gemm import GemmProblem, GemmSignature
from tilewright.ops.gemm.family import GemmFamily

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WarpDotSchedule(ScheduleDefaults):
    pipeline: str = field(default="warp_dot", init=False)
    warps: int  # of a block

    pipelines: ClassVar[tuple[str, ...]] = ("warp_dot",)
    warp_tile: ClassVar[Shape] = (1, 1, 1)
    warp_grid: ClassVar[Shape] = (1, 1, 1)
    tile: ClassVar[Shape] = (1, 1, 1)

    def label(self) -> str:
        return f"warp_dot{self.warps}"


class WarpDot(KernelsDefaults, GemmFamily):
    schedules: tuple[type[Any], ...] = (WarpDotSchedule,)
    template = ("extrafamilies", "templates/warp_dot.cu.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[WarpDotSchedule]:
        if signature.layout == "rcr" and signature.variant == "standard":
            yield WarpDotSchedule(warps=4)

    def violations(self, signature: GemmSignature, schedule: WarpDotSchedule, arch: Arch) -> Iterator[Violation]:
        if signature.layout != "rcr" or signature.variant != "standard" or signature.dtype_acc != "fp32":
            message = f"{signature.label()} is not a plain product of floats in rcr"
            yield Violation("warp-dot-signature", message, "use another kernel")
        if schedule.warps > arch.max_threads // 32:
            message = f"{schedule.warps} warps of 32 threads"
            yield Violation("warp-dot-warps", message, f"use {arch.max_threads // 32} or fewer")

    def limits(self, spec: KernelSpec, problem: GemmProblem) -> Iterator[Violation]:
        yield from super().limits(spec, problem)
        if problem.batch != 1:
            yield Violation("warp-dot-batch", f"a batch of {problem.batch}", "call it once a matrix")

    def include_dirs(self) -> tuple[Path, ...]:
        return (Path(__file__).parent / "include",)

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return float(4e-6 + problem.flops / 1e11)


FAMILY: KernelFamily = WarpDot()
