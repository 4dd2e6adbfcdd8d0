"""All the HIP backend knows of convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

_START = 5e-6
_LOOP_RATE = 5e11  # products of the loops a second


class HipConv(KernelsDefaults):
    template = ("tilewright.backends.hip", "templates/conv.hpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {"header": "conv_loops.h", "kernel": "ConvLoopsKernel", "fields": {}}

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return _START + problem.flops / 2 / _LOOP_RATE

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


KERNELS = HipConv()
