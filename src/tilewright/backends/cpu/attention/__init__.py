"""All the CPU backend knows of attention: its kernel families, and what they share.

tiled    many rows: queries in lanes, blocks of keys, a running softmax
decode   few rows: the cache is read once, in its own order; its keys are shared among threads
loops    the fallback: any size, stride, element type and feature

The first two take any head size, stride, length, window, bias, mask and sink, and pages but vectorised ones; dropout
and scales are left to the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.cpu.attention.decode import FAMILY as DECODE
from tilewright.backends.cpu.attention.loops import FAMILY as LOOPS
from tilewright.backends.cpu.attention.rates import rates
from tilewright.backends.cpu.attention.tiled import FAMILY as TILED
from tilewright.backends.families import OpFamilies
from tilewright.backends.native import FamiliesNative
from tilewright.ops.attention.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import Violation


class CpuAttention(OpFamilies):
    backend, op = "cpu", "attention"
    own = (TILED, DECODE, LOOPS)

    def signature_rules(self, signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)
        if "fp8_e4m3fnuz" in (signature.dtype_q, signature.dtype_kv):
            yield Violation("dtype-input", "CPUs have no kernels for fp8_e4m3fnuz", "use fp8_e4m3")

    def fallback_schedule(self, signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
        return LoopsSchedule()

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(self, "tw::selection::Attention", PROBLEM, problem_numbers, _arch_numbers, rates)


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"vector_bytes": arch.vector_bytes}


KERNELS = CpuAttention()
