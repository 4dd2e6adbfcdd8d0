"""Attention: o = softmax(cap(scale q.k) + bias) v of the keys a row sees, and caches that keys are appended to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright import lazy
from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention import legality, pools, split_plans
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP, AttentionSignature
from tilewright.ops.attention.splits import splits_of
from tilewright.ops.modular import ModularOp

if TYPE_CHECKING:
    from tilewright.ops.demo import Demo

__all__ = ["ATTENTION", "AttentionProblem", "AttentionSignature"]


class AttentionOp(ModularOp):
    """Attention behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "o = softmax(cap(scale q.k) + bias) v of the keys a row sees; keys appended to a cache"
    problem_class = AttentionProblem

    @cached_property
    def demo(self) -> Demo:
        from tilewright.ops.attention.demo import DEMO

        return DEMO

    def measured_as(self, problem: AttentionProblem) -> AttentionProblem:
        """Gaps between rows hardly matter; which of heads and rows is the outer does."""
        p = problem
        return p.dense() if all(s[1] > s[2] or not s[1] for s in (p.q_strides, p.k_strides, p.v_strides)) else p

    def stages(self, problem: AttentionProblem, arch: str) -> Sequence[AttentionProblem]:
        """Parts of the keys and their combination where the rule (or the user) wants several."""
        return split_plans.stages(problem, splits_of(problem, arch_by_name(arch)))

    def split_plans(self, problem: AttentionProblem, arch: str) -> Mapping[str, Sequence[AttentionProblem]]:
        return split_plans.split_plans(problem, arch_by_name(arch))


ATTENTION = AttentionOp(legality, pools, lazy.module("tilewright.ops.attention.options"))
