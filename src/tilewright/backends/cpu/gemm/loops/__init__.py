"""loops: plain loops, for any size, stride and element type; the fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cpu.gemm.shared import CpuGemmFamily, preshuffled_alone
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.schedule import ONE, SHAPES, Shape
from tilewright.ops.gemm.spec import GemmSignature


@dataclass(frozen=True, slots=True)
class CpuLoopsSchedule:
    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    tile: ClassVar[Shape] = ONE
    warp_tile: ClassVar[Shape] = ONE
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        return self.pipeline


class Loops(CpuGemmFamily):
    name = "loops"
    schedules = (CpuLoopsSchedule,)

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuLoopsSchedule]:
        """In no pool: it is what remains where no kernel of one serves a problem."""
        return iter(())

    def violations(self, signature: GemmSignature, schedule: CpuLoopsSchedule, arch: Arch) -> Iterator[Violation]:
        yield from preshuffled_alone(signature)

    def work(self, spec: KernelSpec) -> str:
        return "GemmLoops<Config>"

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


FAMILY = Loops()
