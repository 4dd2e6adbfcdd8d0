"""loops: any size, stride, element type and feature; also parts put together, and appended rows.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cuda.attention.shared import CudaAttentionFamily
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature


class Loops(CudaAttentionFamily):
    name = "loops"
    schedules = (LoopsSchedule,)
    device, host = "TW_DEVICE_ATTENTION_LOOPS", "HostAttentionLoops"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()


FAMILY = Loops()
