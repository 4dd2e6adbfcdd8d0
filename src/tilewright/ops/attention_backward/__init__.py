"""The gradients of attention: dq, dk, dv, and those of a bias, of sink logits and of ALiBi's slopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.ops.attention_backward import legality, options, plans, pools
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import OP, AttentionBackwardSignature
from tilewright.ops.base import Axis, KernelSpec, OpDefaults, Option, Violation, from_plain

__all__ = ["ATTENTION_BACKWARD", "AttentionBackwardProblem", "AttentionBackwardSignature"]


class AttentionBackwardOp(OpDefaults):
    """The gradients behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "dq, dk, dv of attention, and the gradients of its bias, sink logits and ALiBi slopes"
    axes: tuple[Axis, ...] = pools.AXES
    options: tuple[Option, ...] = options.OPTIONS

    @cached_property
    def pool_names(self) -> tuple[str, ...]:
        return pools.POOLS.names

    @cached_property
    def schedules(self) -> tuple[type[Any], ...]:
        return legality.SPACES.every_schedule()

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return legality.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return legality.check(spec)

    def supports(self, spec: KernelSpec, problem: AttentionBackwardProblem) -> list[Violation]:
        return legality.supports(spec, problem)

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

    def problem_violations(self, problem: AttentionBackwardProblem, arch: str) -> list[Violation]:
        return legality.problem_check(problem, arch)

    def problem(self, values: Mapping[str, Any]) -> AttentionBackwardProblem:
        return options.problem(values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> AttentionBackwardProblem:
        problem: AttentionBackwardProblem = from_plain(AttentionBackwardProblem, "an attention_backward problem", data)
        return problem

    def words(self, problem: AttentionBackwardProblem) -> list[str]:
        return options.words(problem)

    def axes_of(self, signature: AttentionBackwardSignature) -> dict[str, tuple[Any, ...]]:
        return pools.axes_of(signature)

    def signatures_of(self, text: str) -> Iterator[AttentionBackwardSignature]:
        return pools.signatures_of(text)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return pools.proposals(pool, arch, **axes)

    def fallback_spec(self, signature: AttentionBackwardSignature, arch: str) -> KernelSpec:
        return pools.POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: AttentionBackwardSignature, arch: str) -> Sequence[KernelSpec]:
        return pools.POOLS.candidates(signature, arch)


ATTENTION_BACKWARD = AttentionBackwardOp()
