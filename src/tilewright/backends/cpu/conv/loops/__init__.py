"""loops: plain loops, for any size, stride and element type; the fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cpu.conv.shared import PIXELS, WEIGHTS, CpuConvFamily
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature


class Loops(CpuConvFamily):
    name, work, variants = "loops", "ConvLoops", (*PIXELS, *WEIGHTS)
    schedules = (LoopsSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def block_violations(self, signature: ConvSignature, schedule: LoopsSchedule, arch: Arch) -> Iterator[Violation]:
        return iter(())

    def config(self, schedule: LoopsSchedule) -> Mapping[str, object]:
        return {}

    def channels_last_work(self) -> str:
        """It reads any memory."""
        return "tw::ConvLoops<Config>"

    def transposed(self, problem: ConvProblem) -> str:
        return ""

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


FAMILY = Loops()
