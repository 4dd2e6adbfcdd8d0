"""planar: vectors along pixels, for results of few channels; what is read is transposed into planes, results back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    PIXELS,
    TILE_LIMIT,
    CpuConvFamily,
    OfOneThread,
    Shape,
    block_numbers,
    sizes,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import ConvSignature

# Channels and vectors of pixels of the register blocks worth having, best first, by vector registers.
_BLOCKS = {32: ((12, 2), (4, 6), (8, 3)), 16: ((6, 2), (3, 3), (4, 2))}


@dataclass(frozen=True, slots=True)
class CpuPlanarSchedule(OfOneThread):
    pipeline: str = field(default="planar", init=False)
    planes: int  # floats of the planes made at a time, about
    warp_tile: Shape  # channels by pixels

    pipelines: ClassVar[tuple[str, ...]] = ("planar",)

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"planar{self.planes}_{sizes(self.warp_tile)}"


class Planar(CpuConvFamily):
    name, work, variants = "planar", "ConvPlanar", PIXELS
    schedules = (CpuPlanarSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuPlanarSchedule]:
        if signature.variant not in self.variants:
            return
        blocks = _BLOCKS[arch.vector_registers]
        for rows, vectors in blocks[:2] if pool == "default" else blocks:
            for floats in (1 << 14, 1 << 15, 1 << 16, 1 << 17) if pool == "profiler" else (1 << 16,):
                yield CpuPlanarSchedule(floats, (rows, vectors * lanes(arch), 1))

    def block_violations(
        self, signature: ConvSignature, schedule: CpuPlanarSchedule, arch: Arch
    ) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        if signature.dtype == "int8":
            yield Violation(
                "cpu-planar-type", "planes are fp32, which does not hold sums of int8 exactly", "use implicit"
            )
        if schedule.planes > TILE_LIMIT:
            message = f"planes of {schedule.planes} floats are larger than any cache"
            yield Violation("cpu-cache-block", message, "use fewer")

    def transposed(self, problem: ConvProblem) -> str:
        """Planes are read and written as they are."""
        p, transposed = problem, ""
        for name in "xwy":
            strides = getattr(p, f"{name}_strides")
            planes = name != "w" and strides[-2] == 1
            if strides[-1] != 1 and not (planes and (p.variant == "forward" or name == "y" or p.stride[-1] == 1)):
                transposed += name
        return transposed

    def config(self, schedule: CpuPlanarSchedule) -> Mapping[str, object]:
        return {**super().config(schedule), "planes": schedule.planes}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return block_numbers(spec.schedule)


FAMILY = Planar()
