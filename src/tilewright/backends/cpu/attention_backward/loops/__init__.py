"""loops: any size, stride, element type and feature, of every stage.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cpu.attention_backward.shared import CpuAttentionBackwardFamily
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

_WORKS = {"dot": "AttentionDotLoops", "grad": "AttentionGradLoops", "convert": "AttentionConvertLoops"}


class Loops(CpuAttentionBackwardFamily):
    name = "loops"
    schedules = (LoopsSchedule,)

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def work(self, spec: KernelSpec) -> str:
        return _WORKS[spec.signature.family]


FAMILY = Loops()
