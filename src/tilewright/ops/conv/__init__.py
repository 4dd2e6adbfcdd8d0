"""Grouped convolution: y = epilogue(conv(x, w), D0, D1), and its gradients for x and for w."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.ops.base import Axis, KernelSpec, OpDefaults, Option, Violation, from_plain
from tilewright.ops.conv import legality, options, pools
from tilewright.ops.conv.demo import DEMO
from tilewright.ops.conv.patches import joined_patches
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import OP, ConvSignature

__all__ = ["CONV", "ConvProblem", "ConvSignature"]


class ConvOp(OpDefaults):
    """Convolution behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "y = epilogue(conv(x, w), D0, D1) in groups, and its gradients for x and for w"
    axes: tuple[Axis, ...] = pools.AXES
    options: tuple[Option, ...] = options.OPTIONS
    demo = DEMO

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

    def supports(self, spec: KernelSpec, problem: ConvProblem) -> list[Violation]:
        return legality.supports(spec, problem)

    def padded(self, spec: KernelSpec, problem: ConvProblem) -> ConvProblem | None:
        return legality.padded(spec, problem)

    def measured_as(self, problem: ConvProblem) -> ConvProblem:
        """Gaps between rows hardly matter; where channels lie does."""
        return problem.dense() if problem.channels_last else problem

    def stages(self, problem: ConvProblem, arch: str) -> Sequence[ConvProblem]:
        return (joined_patches(problem),)

    def remarks(self, spec: KernelSpec, problem: ConvProblem) -> list[str]:
        return legality.remarks(spec, problem)

    def problem_violations(self, problem: ConvProblem, arch: str) -> list[Violation]:
        return legality.problem_check(problem, arch)

    def problem(self, values: Mapping[str, Any]) -> ConvProblem:
        return options.problem(values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> ConvProblem:
        problem: ConvProblem = from_plain(ConvProblem, "a conv problem", data)
        return problem

    def words(self, problem: ConvProblem) -> list[str]:
        return options.words(problem)

    def axes_of(self, signature: ConvSignature) -> dict[str, tuple[Any, ...]]:
        return pools.axes_of(signature)

    def signatures_of(self, text: str) -> Iterator[ConvSignature]:
        return pools.signatures_of(text)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return pools.proposals(pool, arch, **axes)

    def fallback_spec(self, signature: ConvSignature, arch: str) -> KernelSpec:
        return pools.POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: ConvSignature, arch: str) -> Sequence[KernelSpec]:
        return pools.POOLS.candidates(signature, arch)


CONV = ConvOp()
