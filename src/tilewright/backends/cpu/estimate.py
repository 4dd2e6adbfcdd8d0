"""Predicted seconds of a CPU kernel: enough to order candidates, never to report."""

from __future__ import annotations

from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem


def seconds(spec: KernelSpec, problem: GemmProblem, threads: int) -> float:
    if spec.schedule.pipeline == "generic":
        return problem.flops / 1e9
    return problem.flops / 1e11
