"""All the HIP backend knows of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.base import KernelsDefaults
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec

_START = 5e-6
_LOOP_RATE = 5e11  # products of the loops a second


class HipAttention(KernelsDefaults):
    template = ("tilewright.backends.hip", "templates/attention.hpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {"header": "attention_loops.h", "kernel": "AttentionLoopsKernel", "fields": {}}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return _START + (problem.flops / 2 + problem.bytes / 4) / _LOOP_RATE


KERNELS = HipAttention()
