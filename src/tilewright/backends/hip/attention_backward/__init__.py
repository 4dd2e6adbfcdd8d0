"""All the HIP backend knows of attention's gradients: its kernel families, and what they share.

rows     dot and convert: 16 bytes a thread
loops    the fallback, on every GPU: the loops that CUDA has too
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.families import OpFamilies
from tilewright.backends.hip.attention_backward.loops import FAMILY as LOOPS
from tilewright.backends.hip.attention_backward.rates import arch_numbers, rates
from tilewright.backends.hip.attention_backward.rows import FAMILY as ROWS
from tilewright.backends.native import FamiliesNative
from tilewright.ops.attention_backward.family import AttentionBackwardSpace
from tilewright.ops.attention_backward.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule, LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, signature_violations
from tilewright.ops.base import Violation


class HipAttentionBackward(OpFamilies, AttentionBackwardSpace):
    backend, op = "hip", "attention_backward"
    own = (ROWS, LOOPS)
    USUAL = "fp16"

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)

    def fallback_schedule(self, signature: AttentionBackwardSignature, arch: Arch) -> AttentionBackwardSchedule:
        return LoopsSchedule()

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::AttentionBackward", PROBLEM, problem_numbers, arch_numbers, rates
        )  # fmt: skip


KERNELS = HipAttentionBackward()
