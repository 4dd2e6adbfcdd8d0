"""GEMM: E = epilogue(alpha * A.B + beta * C, D0, D1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.ops.base import Axis, KernelSpec, NamedSet, OpDefaults, Option, Violation, from_plain
from tilewright.ops.gemm import ck_words, legality, options, pools
from tilewright.ops.gemm.demo import DEMO
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature

__all__ = ["GEMM", "GemmProblem", "GemmSchedule", "GemmSignature"]


class GemmOp(OpDefaults):
    """The GEMM op behind the generic contract of `tilewright.ops.base.Op`."""

    name = "gemm"
    summary = "E = epilogue(alpha * A.B + beta * C, D0, D1), batched"
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
    def preselected_sets(self) -> Mapping[str, NamedSet]:
        return pools.POOLS.sets

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return legality.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return legality.check(spec)

    def supports(self, spec: KernelSpec, problem: GemmProblem) -> list[Violation]:
        return legality.supports(spec, problem)

    def padded(self, spec: KernelSpec, problem: GemmProblem) -> GemmProblem | None:
        return legality.padded(spec, problem)

    def measured_as(self, problem: GemmProblem) -> GemmProblem:
        return problem.dense()

    def problem_violations(self, problem: GemmProblem, arch: str) -> list[Violation]:
        return legality.problem_check(problem, arch)

    def problem(self, values: Mapping[str, Any]) -> GemmProblem:
        return options.problem(values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> GemmProblem:
        problem: GemmProblem = from_plain(GemmProblem, "a gemm problem", data)
        return problem

    def words(self, problem: GemmProblem) -> list[str]:
        return options.words(problem)

    def axes_of(self, signature: GemmSignature) -> dict[str, tuple[Any, ...]]:
        return pools.axes_of(signature)

    def signatures_of(self, text: str) -> Iterator[GemmSignature]:
        return pools.signatures_of(text)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return pools.proposals(pool, arch, **axes)

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        return pools.POOLS.preselected(name, arch)

    def configured(self, data: Mapping[str, Any], arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return ck_words.configured(self, data, arch, axes)

    def fallback_spec(self, signature: GemmSignature, arch: str) -> KernelSpec:
        return pools.POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: GemmSignature, arch: str) -> Sequence[KernelSpec]:
        return pools.POOLS.candidates(signature, arch)


GEMM = GemmOp()
