"""How long a convolution takes on an NVIDIA GPU, about: enough to order kernels that nobody measured."""

from __future__ import annotations

from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

START = 4e-6
LOOP_RATE = 5e11  # products of the loops a second, where there are elements enough for all threads
LOOP_STEP = 2e-8  # a product, one after another on one thread


def seconds(spec: KernelSpec, problem: ConvProblem) -> float:
    return START + max(problem.flops / 2 / LOOP_RATE, problem.gemm[2] * LOOP_STEP)
