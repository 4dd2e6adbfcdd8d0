"""direct: register blocks that read A and B in place, no cache block beyond them; for small problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm.shared import BLOCKS, CpuGemmFamily, dot_step, preshuffled_alone
from tilewright.backends.cpu.vectors import block_rules, lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.schedule import ONE, SHAPES, Shape, sizes
from tilewright.ops.gemm.spec import GemmSignature


@dataclass(frozen=True, slots=True)
class CpuDirectSchedule:
    pipeline: str = field(default="direct", init=False)
    warp_tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("direct",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"direct_{sizes(self.warp_tile)}"


class Direct(CpuGemmFamily):
    name = "direct"
    schedules = (CpuDirectSchedule,)

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuDirectSchedule]:
        if pool == "tiny" or signature.variant == "preshuffle":
            return
        blocks = BLOCKS[arch.vector_registers]
        for rows, vectors in blocks if pool in ("full", "profiler") else (blocks[1], blocks[0]):
            yield CpuDirectSchedule((rows, vectors * lanes(arch), dot_step(signature, arch)))

    def violations(self, signature: GemmSignature, schedule: CpuDirectSchedule, arch: Arch) -> Iterator[Violation]:
        yield from preshuffled_alone(signature)
        yield from block_rules(schedule.warp_tile, dot_step(signature, arch), signature.dtype_a, arch)
        if signature.layout[1] != "r":
            yield Violation("cpu-direct-layout", "the direct pipeline reads B by rows", "use a row-major B, or packed")
        if signature.dtype_a == "int8" and "vnni" in arch.features:
            yield Violation(
                "cpu-direct-int8",
                "VNNI needs packed column totals, which the direct pipeline does not have",
                "use packed",
            )

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return dict(zip(("rows", "columns", "step"), spec.schedule.warp_tile, strict=True))

    def work(self, spec: KernelSpec) -> str:
        return "GemmDirect<Config>"


FAMILY = Direct()
