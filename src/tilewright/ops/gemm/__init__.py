"""GEMM: E = epilogue(alpha * A.B + beta * C, D0, D1, ...)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright import lazy
from tilewright.ops.base import KernelSpec, NamedSet
from tilewright.ops.gemm import legality, pools
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.ops.modular import ModularOp

if TYPE_CHECKING:
    from tilewright.ops.demo import Demo

__all__ = ["GEMM", "GemmProblem", "GemmSchedule", "GemmSignature"]


class GemmOp(ModularOp):
    """The GEMM op behind the generic contract of `tilewright.ops.base.Op`."""

    name = "gemm"
    summary = "E = epilogue(alpha * A.B + beta * C, D0, D1), batched"
    problem_class = GemmProblem

    @cached_property
    def demo(self) -> Demo:
        from tilewright.ops.gemm.demo import DEMO

        return DEMO

    @cached_property
    def preselected_sets(self) -> Mapping[str, NamedSet]:
        return pools.POOLS.sets

    def padded(self, spec: KernelSpec, problem: GemmProblem) -> GemmProblem | None:
        return legality.padded(spec, problem)

    def copied_grains(self, spec: KernelSpec) -> tuple[int, ...] | None:
        return legality.copied_grains(spec)

    def measured_as(self, problem: GemmProblem) -> GemmProblem:
        return problem.dense()

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        return pools.POOLS.preselected(name, arch)

    def configured(self, data: Mapping[str, Any], arch: str, **axes: Any) -> Iterator[KernelSpec]:
        from tilewright.ops.gemm import ck_words  # which reads configurations of sweeps: calls do without it

        return ck_words.configured(self, data, arch, axes)


GEMM = GemmOp(legality, pools, lazy.module("tilewright.ops.gemm.options"))
