"""All the CPU backend knows of GEMM: its kernel families, and what they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm.direct import FAMILY as DIRECT
from tilewright.backends.cpu.gemm.loops import FAMILY as LOOPS
from tilewright.backends.cpu.gemm.loops import CpuLoopsSchedule
from tilewright.backends.cpu.gemm.packed import FAMILY as PACKED
from tilewright.backends.cpu.gemm.preselected import SETS
from tilewright.backends.cpu.gemm.rates import rates
from tilewright.backends.cpu.gemm.stream import FAMILY as STREAM
from tilewright.backends.families import OpFamilies
from tilewright.backends.native import FamiliesNative
from tilewright.ops.base import Violation
from tilewright.ops.gemm.dtype_rules import dtype_rules, one_b
from tilewright.ops.gemm.numbers import FEATURES, FEATURES_HEADER, PROBLEM, problem_numbers
from tilewright.ops.gemm.spec import GemmSignature

FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")


class CpuGemm(OpFamilies):
    backend, op = "cpu", "gemm"
    own = (PACKED, STREAM, DIRECT, LOOPS)
    SETS = SETS

    def signature_rules(self, signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
        """Which dtypes go together."""
        yield from dtype_rules(signature, FLOATS, FLOAT_OUTPUTS, INT_OUTPUTS)
        yield from one_b(signature, arch)

    def fallback_schedule(self, signature: GemmSignature, arch: Arch) -> Any:
        """Plain loops, or the simplest kernel that reads a packed B."""
        if signature.variant == "preshuffle":
            return next(PACKED.proposals("tiny", signature, arch))
        return CpuLoopsSchedule()

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::PreparedGemm", PROBLEM, problem_numbers, _arch_numbers, rates,
            exports="TW_SELECT_GEMM_FEATURES", headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"vector_bytes": arch.vector_bytes}


KERNELS = CpuGemm()
