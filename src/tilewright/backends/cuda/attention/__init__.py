"""All the CUDA backend knows of attention: its kernel families, and what they share.

ws       sm_90a: TMA feeds wgmma, softmax beside products; rows of 16 bytes.  Its pipeline `decode` packs the query
         heads of one head of keys into a tile of rows; `decode_stream_k` does so too, every block with
         an equal share of all keys
fp8      sm_90a: both products in e4m3
mla      sm_90a: heads of 576 whose values are the first 512 of their keys
mma      sm_80 on, and what TMA does not read: mma.sync and cp.async
combine  parts put together, a team of warps for a row of one head
loops    the fallback: any size, stride, element type and feature; also parts put together, and appended rows
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.cuda.attention.combine import FAMILY as COMBINE
from tilewright.backends.cuda.attention.fp8 import FAMILY as FP8
from tilewright.backends.cuda.attention.loops import FAMILY as LOOPS
from tilewright.backends.cuda.attention.mla import FAMILY as MLA
from tilewright.backends.cuda.attention.mma import FAMILY as MMA
from tilewright.backends.cuda.attention.rates import arch_numbers, rates
from tilewright.backends.cuda.attention.ws import FAMILY as WS
from tilewright.backends.families import OpFamilies
from tilewright.backends.gpu.attention import KvSplits
from tilewright.backends.native import FamiliesNative
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import Violation

MLA_VALUES = 512  # elements of a head of values, from which on the mla pipeline is for


class CudaAttention(KvSplits, OpFamilies):
    backend, op = "cuda", "attention"
    own = (WS, FP8, MLA, MMA, COMBINE, LOOPS)
    USUAL = "bf16"

    def signature_rules(self, signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)
        if "fp8_e4m3fnuz" in (signature.dtype_q, signature.dtype_kv):
            yield Violation("dtype-input", "NVIDIA GPUs have no kernels for fp8_e4m3fnuz", "use fp8_e4m3")

    def fallback_schedule(self, signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
        return LoopsSchedule()

    def key_elements(self, problem: AttentionProblem, arch: Arch) -> int:
        """The mla pipeline reads values that are the first elements of their keys once."""
        p, two_bytes = problem, DTYPES[problem.dtype_q].bytes == DTYPES[problem.dtype_kv].bytes == 2
        once = two_bytes and MLA_VALUES <= p.head_dim_v <= p.head_dim and {"wgmma", "tma"} <= arch.features
        return p.head_dim if once else super().key_elements(p, arch)

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::Attention", PROBLEM, problem_numbers, arch_numbers, rates,
            exports="TW_SELECT_MEETING_TRIPS",
        )  # fmt: skip


KERNELS = CudaAttention()
