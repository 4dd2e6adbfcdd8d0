"""All the CPU backend knows of convolution: its kernel families, and what they share.

implicit       forward and backward-data as a GEMM that reads its operand in place
winograd       the same of 3 x 3 windows with fewer products and another error bound (reference.py)
planar         the same for results of few channels, with pixels in lanes
lanes          the same of depthwise and small groups
outer          backward-weight as sums of outer products
direct_wgrad  the same of few channels, with filters in lanes
lanes_wgrad   the same of depthwise and small groups
loops          the fallback: any size, stride and element type
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.direct_wgrad import FAMILY as DIRECT_WGRAD
from tilewright.backends.cpu.conv.implicit import FAMILY as IMPLICIT
from tilewright.backends.cpu.conv.lanes import FAMILY as LANES
from tilewright.backends.cpu.conv.lanes_wgrad import FAMILY as LANES_WGRAD
from tilewright.backends.cpu.conv.loops import FAMILY as LOOPS
from tilewright.backends.cpu.conv.outer import FAMILY as OUTER
from tilewright.backends.cpu.conv.planar import FAMILY as PLANAR
from tilewright.backends.cpu.conv.rates import rates
from tilewright.backends.cpu.conv.winograd import FAMILY as WINOGRAD
from tilewright.backends.families import OpFamilies
from tilewright.backends.native import FamiliesNative
from tilewright.ops.base import Violation
from tilewright.ops.conv.numbers import FEATURES, FEATURES_EXPORT, FEATURES_HEADER, PROBLEM, problem_numbers
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules


class CpuConv(OpFamilies):
    backend, op = "cpu", "conv"
    copies_any_layout = True
    own = (IMPLICIT, OUTER, WINOGRAD, DIRECT_WGRAD, PLANAR, LANES, LANES_WGRAD, LOOPS)

    def signature_rules(self, signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
        """Which element types go together."""
        yield from dtype_rules(signature)

    def fallback_schedule(self, signature: ConvSignature, arch: Arch) -> LoopsSchedule:
        return LoopsSchedule()

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::Conv", PROBLEM, problem_numbers, _arch_numbers, rates,
            exports=FEATURES_EXPORT, headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"vector_bytes": arch.vector_bytes}


KERNELS = CpuConv()
