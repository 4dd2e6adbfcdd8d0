"""All the CUDA backend knows of attention.

A pipeline is two headers of `cuda/` (`cuda/attention.h` says what they have) and a function here that turns a schedule
into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.backends.base import KernelsDefaults
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec

COMPILE_MEMORY = 600 << 20
_START = 5e-6
_LOOP_RATE = 5e11  # products of the loops a second

Fields = Mapping[str, object]  # of a Config, each as C++ writes it


class Pipeline(NamedTuple):
    device_header: str
    host_header: str
    device: str  # the macro that names its functions
    host: str  # the struct of the host's half
    fields: Callable[[KernelSpec], Fields]
    beside: tuple[str, ...] = ()  # what the names of its other functions end in


PIPELINES = {
    "loops": Pipeline(
        "attention_loops.h",
        "attention_host_loops.h",
        "TW_DEVICE_ATTENTION_LOOPS",
        "HostAttentionLoops",
        lambda spec: {},
    ),
}


class CudaAttention(KernelsDefaults):
    template = ("tilewright.backends.cuda", "templates/attention.cu.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {**found._asdict(), "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return _START + (problem.flops / 2 + problem.bytes / 4) / _LOOP_RATE

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


KERNELS = CudaAttention()
