"""What the gradients ask of a backend's kernels beyond `ops.families.FamilySpace`, with the plain answer."""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem


class AttentionBackwardSpace:
    def accumulates(self, problem: AttentionBackwardProblem, arch: Arch) -> tuple[str, ...]:
        """Which results `grad` leaves in fp32 accumulators for `convert` (`spec.ACCUMULATES`): the first is how a
        problem is computed, the others are worth measuring beside it."""
        return ("none",)

    def dkv_splits(self, problem: AttentionBackwardProblem, arch: Arch) -> tuple[int, ...]:
        """Partial sums of dk and dv per KV head, where there are any (0: one a query head); the first as above."""
        return (0,)

    def dot_clears(self, arch: Arch) -> bool:
        """Whether its `dot` kernels set the fp32 accumulator of dq to zero for `grad` on request."""
        return False
