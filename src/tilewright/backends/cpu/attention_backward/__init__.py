"""All the CPU backend knows of attention's gradients: its kernel families, and what they share.

tiled    grad: queries in lanes, blocks of keys whose dk and dv stay in the cache
rows     dot and convert: a row at a time, in vectors
loops    the fallback: any size, stride, element type and feature

Every sum is added in an order that follows from the problem alone, so all of them are deterministic, on any number of
threads; `grad` writes dq, dk and dv itself, so there is no third stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.cpu.attention_backward.loops import FAMILY as LOOPS
from tilewright.backends.cpu.attention_backward.rates import rates
from tilewright.backends.cpu.attention_backward.rows import FAMILY as ROWS
from tilewright.backends.cpu.attention_backward.tiled import FAMILY as TILED
from tilewright.backends.families import OpFamilies
from tilewright.backends.native import FamiliesNative
from tilewright.ops.attention_backward.family import AttentionBackwardSpace
from tilewright.ops.attention_backward.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule, LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, signature_violations
from tilewright.ops.base import Violation


class CpuAttentionBackward(OpFamilies, AttentionBackwardSpace):
    backend, op = "cpu", "attention_backward"
    own = (TILED, ROWS, LOOPS)

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)
        if signature.family == "grad" and signature.accumulate != "none":
            message = f"CPU kernels leave no accumulators of {signature.accumulate}"
            yield Violation("cpu-accumulate", message, "use accumulate none: they write dq, dk and dv")

    def fallback_schedule(self, signature: AttentionBackwardSignature, arch: Arch) -> AttentionBackwardSchedule:
        return LoopsSchedule()

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(self, "tw::selection::AttentionBackward", PROBLEM, problem_numbers, _arch_numbers, rates)


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"vector_bytes": arch.vector_bytes}


KERNELS = CpuAttentionBackward()
