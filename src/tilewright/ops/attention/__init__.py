"""Attention: o = softmax(cap(scale q.k) + bias) v of the keys a row sees, and caches that keys are appended to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention import legality, options, pools, split_plans
from tilewright.ops.attention.demo import DEMO
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP, AttentionSignature
from tilewright.ops.attention.splits import splits_of
from tilewright.ops.base import Axis, KernelSpec, OpDefaults, Option, SelectionRule, Violation, from_plain

__all__ = ["ATTENTION", "AttentionProblem", "AttentionSignature"]


class AttentionOp(OpDefaults):
    """Attention behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "o = softmax(cap(scale q.k) + bias) v of the keys a row sees; keys appended to a cache"
    axes: tuple[Axis, ...] = pools.AXES
    options: tuple[Option, ...] = options.OPTIONS
    demo = DEMO

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        return pools.POOLS.names

    @cached_property
    def schedules(self) -> tuple[type[Any], ...]:
        return legality.SPACES.every_schedule()

    @cached_property
    def selection_rules(self) -> Mapping[str, SelectionRule]:
        """Those that design spaces have (`SELECTION_RULES`)."""
        spaces = legality.SPACES.values()
        return {name: rule for space in spaces for name, rule in getattr(space, "SELECTION_RULES", {}).items()}

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return legality.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return legality.check(spec)

    def supports(self, spec: KernelSpec, problem: AttentionProblem) -> list[Violation]:
        return legality.supports(spec, problem)

    def measured_as(self, problem: AttentionProblem) -> AttentionProblem:
        """Gaps between rows hardly matter; which of heads and rows is the outer does."""
        p = problem
        return p.dense() if all(s[1] > s[2] or not s[1] for s in (p.q_strides, p.k_strides, p.v_strides)) else p

    def stages(self, problem: AttentionProblem, arch: str) -> Sequence[AttentionProblem]:
        """Parts of the keys and their combination where the rule (or the user) wants several."""
        return split_plans.stages(problem, splits_of(problem, arch_by_name(arch)))

    def split_plans(self, problem: AttentionProblem, arch: str) -> Mapping[str, Sequence[AttentionProblem]]:
        return split_plans.split_plans(problem, arch_by_name(arch))

    def problem_violations(self, problem: AttentionProblem, arch: str) -> list[Violation]:
        return legality.problem_check(problem, arch)

    def problem(self, values: Mapping[str, Any]) -> AttentionProblem:
        return options.problem(values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> AttentionProblem:
        problem: AttentionProblem = from_plain(AttentionProblem, "an attention problem", data)
        return problem

    def words(self, problem: AttentionProblem) -> list[str]:
        return options.words(problem)

    def axes_of(self, signature: AttentionSignature) -> dict[str, tuple[Any, ...]]:
        return pools.axes_of(signature)

    def signatures_of(self, text: str) -> Iterator[AttentionSignature]:
        return pools.signatures_of(text)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return pools.proposals(pool, arch, **axes)

    def fallback_spec(self, signature: AttentionSignature, arch: str) -> KernelSpec:
        return pools.POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: AttentionSignature, arch: str) -> Sequence[KernelSpec]:
        return pools.POOLS.candidates(signature, arch)


ATTENTION = AttentionOp()
