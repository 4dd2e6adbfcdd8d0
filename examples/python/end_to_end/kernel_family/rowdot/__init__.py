"""GEMM on the CPU, fp32 in rcr: each element of the result is a dot product of a row of A and a column of B.

Not fast, but a whole kernel family: schedule, rules, limits, cost, template, kernel (docs/adding-a-kernel-family.md).
"""

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
class RowDotSchedule(ScheduleDefaults):
    """What the kernel is compiled with."""

    pipeline: str = field(default="row_dot", init=False)
    columns: int  # of B that are multiplied with a row of A at a time

    pipelines: ClassVar[tuple[str, ...]] = ("row_dot",)
    tile: ClassVar[Shape] = (1, 1, 1)
    warp_tile: ClassVar[Shape] = (1, 1, 1)
    warp_grid: ClassVar[Shape] = (1, 1, 1)

    def label(self) -> str:
        return f"row_dot{self.columns}"


class RowDot(KernelsDefaults, GemmFamily):
    schedules: tuple[type[Any], ...] = (RowDotSchedule,)
    template = ("rowdot", "templates/row_dot.cpp.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[RowDotSchedule]:
        """The kernels that a pool has for a signature; illegal ones are dropped."""
        yield from (RowDotSchedule(columns) for columns in (2, 4))

    def violations(self, signature: GemmSignature, schedule: RowDotSchedule, arch: Arch) -> Iterator[Violation]:
        """Why a kernel cannot be compiled."""
        if signature.variant != "standard" or signature.layout != "rcr" or signature.dtype_b != "fp32":
            yield Violation("row-dot-signature", f"{signature.label()} is no plain fp32 product in rcr", "use rcr")
        if signature.dtype_a != "fp32" or signature.dtype_c != "fp32":
            yield Violation("row-dot-dtype", f"{signature.label()} is not fp32 throughout", "use fp32")

    def limits(self, spec: KernelSpec, problem: GemmProblem) -> Iterator[Violation]:
        """Why a compiled kernel cannot run a problem; its check in C++ says the same."""
        yield from super().limits(spec, problem)
        if problem.n % spec.schedule.columns:
            message = f"n is {problem.n}, which is no multiple of {spec.schedule.columns}"
            yield Violation("row-dot-columns", message, "use another kernel")
        if problem.batch != 1 or problem.beta:
            yield Violation("row-dot-plain", "it has a batch or C", "call it once a matrix, without C")

    def include_dirs(self) -> tuple[Path, ...]:
        return (Path(__file__).parent / "include",)

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        """Seconds; selection takes the lowest."""
        return float(1e-6 + problem.flops / (2e9 * spec.schedule.columns**0.5))


FAMILY: KernelFamily = RowDot()
