"""lanes_wgrad: gradients of weights of depthwise and small groups, a handful of taps in registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import WEIGHTS, OfOneThread, Shape, sizes
from tilewright.backends.cpu.conv.strips import StripFamily
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields

MAX_TAPS = 12  # of a block: each has a pointer in a register


@renamed_fields({}, {"pipeline": {"lanes_weight": "lanes_wgrad"}})
@dataclass(frozen=True, slots=True)
class CpuLanesWgradSchedule(OfOneThread):
    pipeline: str = field(default="lanes_wgrad", init=False)
    warp_tile: Shape  # taps, and one vector of channels

    pipelines: ClassVar[tuple[str, ...]] = ("lanes_wgrad",)

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"lanes_wgrad_{sizes(self.warp_tile)}"


class LanesWgrad(StripFamily):
    name, work, variants = "lanes_wgrad", "ConvLanesWgrad", WEIGHTS
    schedules = (CpuLanesWgradSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuLanesWgradSchedule]:
        if signature.variant not in self.variants:
            return
        default = (12 if arch.vector_registers >= 32 else 8,)
        swept = (2, 4, 6, 8, 10, MAX_TAPS) if pool == "profiler" else (4, 8, MAX_TAPS)
        for taps in default if pool == "default" else swept:
            yield CpuLanesWgradSchedule((taps, lanes(arch), 1))

    def block_violations(
        self, signature: ConvSignature, schedule: CpuLanesWgradSchedule, arch: Arch
    ) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        if schedule.warp_tile[1] == lanes(arch) and schedule.warp_tile[0] > MAX_TAPS:
            message = f"warp_tile_m {schedule.warp_tile[0]} is over {MAX_TAPS}"
            yield Violation("cpu-taps", message, f"use 1 to {MAX_TAPS}")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"taps": spec.schedule.warp_tile[0]}


FAMILY = LanesWgrad()
