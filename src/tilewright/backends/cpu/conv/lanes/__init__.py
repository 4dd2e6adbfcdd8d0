"""lanes: vectors along the channels of the result, each lane in a group of its own: depthwise, and small groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import PIXELS, OfOneThread, Shape, sizes
from tilewright.backends.cpu.conv.strips import StripFamily
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.spec import ConvSignature

_PIXELS = {32: (14, 28, 8), 16: (12, 8, 4)}  # of a run, by vector registers


@dataclass(frozen=True, slots=True)
class CpuLanesSchedule(OfOneThread):
    pipeline: str = field(default="lanes", init=False)
    warp_tile: Shape  # pixels, and one vector of channels

    pipelines: ClassVar[tuple[str, ...]] = ("lanes",)

    @property
    def tile(self) -> Shape:
        return self.warp_tile

    def label(self) -> str:
        return f"lanes_{sizes(self.warp_tile)}"


class Lanes(StripFamily):
    name, work, variants = "lanes", "ConvLanes", PIXELS
    schedules = (CpuLanesSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuLanesSchedule]:
        if signature.variant not in self.variants:
            return
        known = _PIXELS[arch.vector_registers]
        for pixels in known[:1] if pool == "default" else range(4, 29, 2) if pool == "profiler" else known:
            yield CpuLanesSchedule((pixels, lanes(arch), 1))

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"pixels": spec.schedule.warp_tile[0]}


FAMILY = Lanes()
