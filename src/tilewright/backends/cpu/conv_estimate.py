"""How long a convolution takes on the CPU, about: enough to order kernels that nobody measured."""

from __future__ import annotations

from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

START = 2e-6  # of a call, threads woken
LOOP_STEP = 1.5e-9  # a product of the loops, on one thread


def seconds(spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
    return START + LOOP_STEP * problem.flops / 2 / max(1, threads)
