"""loops: any size, stride and element type, on every GPU; the loops that CUDA has too.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.families import Family
from tilewright.backends.hip.conv.shared import LOOPS_MEMORY, TEMPLATE
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature


class Loops(Family, ConvFamily):
    name = "loops"
    schedules = (LoopsSchedule,)
    template = TEMPLATE

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "family": self.name, "kernel": "ConvLoopsKernel", "numbers": (), "switches": (), "shared": False,
            "limits": self.numbers(spec), "headers": ["tilewright/hip/conv/loops/kernel.h"], "includes": [],
            "element": f"tw::{spec.signature.dtype}", "sums": False, "tails": "",
        }  # fmt: skip

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return LOOPS_MEMORY


FAMILY = Loops()
