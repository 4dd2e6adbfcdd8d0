"""loops: the fallback kernel; any size, stride and element type."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.shared import CudaConvFamily
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature


class Loops(CudaConvFamily):
    name = "loops"
    schedules = (LoopsSchedule,)
    host = "HostConvLoops"

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()


FAMILY = Loops()
