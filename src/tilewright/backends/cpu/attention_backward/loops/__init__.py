"""loops: any size, stride, element type and feature, of every stage.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.backends.cpu.attention_backward.shared import CpuAttentionBackwardFamily
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation

_WORKS = {"dot": "AttentionDotLoops", "grad": "AttentionGradLoops", "convert": "AttentionConvertLoops"}


class Loops(CpuAttentionBackwardFamily):
    name = "loops"
    schedules = (LoopsSchedule,)

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def violations(
        self, signature: AttentionBackwardSignature, schedule: LoopsSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return iter(())

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"none": 0}

    def work(self, spec: KernelSpec) -> str:
        return _WORKS[spec.signature.family]


FAMILY = Loops()
