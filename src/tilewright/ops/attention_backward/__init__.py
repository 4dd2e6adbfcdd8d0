"""The gradients of attention: dq, dk, dv, and those of a bias, of sink logits and of ALiBi's slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright import lazy
from tilewright.ops.attention_backward import legality, plans, pools
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import OP, AttentionBackwardSignature
from tilewright.ops.modular import ModularOp

__all__ = ["ATTENTION_BACKWARD", "AttentionBackwardProblem", "AttentionBackwardSignature"]


class AttentionBackwardOp(ModularOp):
    """The gradients behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "dq, dk, dv of attention, and the gradients of its bias, sink logits and ALiBi slopes"
    problem_class = AttentionBackwardProblem

    def measured_as(self, problem: AttentionBackwardProblem) -> AttentionBackwardProblem:
        """Gaps between rows hardly matter; which of heads and rows is the outer does."""
        p = problem
        return p.dense() if all(s[1] > s[2] or not s[1] for s in (p.q_strides, p.k_strides, p.do_strides)) else p

    def stages(self, problem: AttentionBackwardProblem, arch: str) -> Sequence[AttentionBackwardProblem]:
        return next(iter(plans.split_plans(problem, arch).values()))

    def split_plans(
        self, problem: AttentionBackwardProblem, arch: str
    ) -> Mapping[str, Sequence[AttentionBackwardProblem]]:
        return plans.split_plans(problem, arch)


ATTENTION_BACKWARD = AttentionBackwardOp(legality, pools, lazy.module("tilewright.ops.attention_backward.options"))
