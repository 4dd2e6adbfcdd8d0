"""All the CUDA backend knows of attention's gradients: its kernel families, and what they share.

ws       grad on sm_90a: TMA feeds wgmma, dk and dv stay in registers, dq is added up in fp32 by TMA; heads
         of up to 256, rows of 16 bytes; every feature but the gradient of slopes
mma      grad on sm_80 and later: mma.sync and cp.async, two passes that add nothing up over blocks; every feature
rows     dot and convert: 16 bytes a thread
loops    the fallback: any size, stride, element type and feature
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.attention_backward.loops import FAMILY as LOOPS
from tilewright.backends.cuda.attention_backward.mma import FAMILY as MMA
from tilewright.backends.cuda.attention_backward.parts import MOST_PARTS, best_parts
from tilewright.backends.cuda.attention_backward.rates import arch_numbers, rates
from tilewright.backends.cuda.attention_backward.rows import FAMILY as ROWS
from tilewright.backends.cuda.attention_backward.ws import FAMILY as WS
from tilewright.backends.families import OpFamilies
from tilewright.backends.native import FamiliesNative
from tilewright.dtypes import DTYPES
from tilewright.ops.attention_backward.family import AttentionBackwardSpace
from tilewright.ops.attention_backward.numbers import PROBLEM, problem_numbers
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule, LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, signature_violations
from tilewright.ops.base import Violation

LINE_BYTES = 16  # what TMA asks of addresses and strides


class CudaAttentionBackward(OpFamilies, AttentionBackwardSpace):
    backend, op = "cuda", "attention_backward"
    own = (WS, MMA, ROWS, LOOPS)
    USUAL = "bf16"

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        """Why the arch has no kernel for a signature, whatever its schedule."""
        yield from signature_violations(signature)

    def fallback_schedule(self, signature: AttentionBackwardSignature, arch: Arch) -> AttentionBackwardSchedule:
        return LoopsSchedule()

    def accumulates(self, problem: AttentionBackwardProblem, arch: Arch) -> tuple[str, ...]:
        """dq is added up where TMA can do that; dk and dv too where blocks share tiles of keys; else
        kernels write them themselves."""
        signature = problem.stage("grad", "dq").signature
        if not (_has_ws(signature, arch.name) and _lies_in_lines(problem) and _in_order(problem)):
            return ("none",)
        return ("dq", "all", "none") if best_parts(problem, arch) == 1 else ("all", "dq", "none")

    def dkv_splits(self, problem: AttentionBackwardProblem, arch: Arch) -> tuple[int, ...]:
        """What the cost says, and some beside it."""
        best = max(2, best_parts(problem, arch))
        return best, *(parts for parts in (best // 2, best * 2) if 1 < parts <= MOST_PARTS)

    def dot_clears(self, arch: Arch) -> bool:
        return True

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::AttentionBackward", PROBLEM, problem_numbers, arch_numbers, rates
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _has_ws(signature: AttentionBackwardSignature, arch: str) -> bool:
    return any(True for _ in WS.proposals("default", signature, arch_by_name(arch)))


def _in_order(problem: AttentionBackwardProblem) -> bool:
    """Whether what is added up has an order, where one is asked for: entries of a bias that repeats have none."""
    p = problem
    repeats = p.dbias and p.bias_shape != (p.batch, p.heads_q, p.seqlen_q, p.seqlen_k)
    return not (p.deterministic and repeats)


def _lies_in_lines(problem: AttentionBackwardProblem) -> bool:
    """Whether TMA reads its operands: all is in whole 16 bytes, and no stride is 0."""
    p, size = problem, DTYPES[problem.dtype].bytes
    if not p.aligned or any(head * size % LINE_BYTES for head in (p.head_dim, p.head_dim_v)):
        return False
    for name in ("q", "k", "v", "do", "dk", "dv"):
        counts = p.shape(name)[:3]
        strides = getattr(p, f"{name}_strides")
        if any(stride * size % LINE_BYTES for stride in strides):
            return False
        if 0 not in counts and any(not stride and count > 1 for stride, count in zip(strides, counts, strict=True)):
            return False
    return True


KERNELS = CudaAttentionBackward()
