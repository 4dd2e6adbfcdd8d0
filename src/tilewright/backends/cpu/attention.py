"""All the CPU backend knows of attention.

A pipeline is a header `cpu/attention_PIPELINE.h` with a class template for each family of signatures it serves, its
Work (`cpu/attention.h` says what it has), and a function here that turns a schedule into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.backends.base import KernelsDefaults
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec

Fields = Mapping[str, object]  # of a Config, each as C++ writes it

# Peak resident size of one compile of our largest kernels, rounded up.
_COMPILE_MEMORY = {"gcc": 200 << 20, "clang": 300 << 20, "zig": 350 << 20}
_LOOP_RATE = 2e9  # products of the loops a second and thread
_START = 2e-6


class Pipeline(NamedTuple):
    header: str
    works: Mapping[str, str]  # of each family of signatures
    fields: Callable[[KernelSpec], Fields]


PIPELINES = {
    "loops": Pipeline(
        "attention_loops.h",
        {
            "forward": "AttentionLoops",
            "split": "AttentionLoops",
            "combine": "AttentionCombineLoops",
            "append": "AttentionAppendLoops",
        },
        lambda spec: {},
    ),
}


class CpuAttention(KernelsDefaults):
    template = ("tilewright.backends.cpu", "templates/attention.cpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {"header": found.header, "work": found.works[spec.signature.family], "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return _START + (problem.flops / 2 + problem.bytes / 4) / _LOOP_RATE / max(1, threads)

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return _COMPILE_MEMORY.get(compiler, max(_COMPILE_MEMORY.values()))


KERNELS = CpuAttention()
