"""loops: any size, stride, element type and feature; also parts put together, and appended rows.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cpu.attention.shared import CpuAttentionFamily
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

_WORKS = {"combine": "AttentionCombineLoops", "append": "AttentionAppendLoops"}


class Loops(CpuAttentionFamily):
    name = "loops"
    schedules = (LoopsSchedule,)

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def work(self, spec: KernelSpec) -> str:
        return _WORKS.get(spec.signature.family, "AttentionLoops")

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


FAMILY = Loops()
