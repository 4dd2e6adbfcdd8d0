"""All the CPU backend knows of attention.

A pipeline is a header `cpu/attention_PIPELINE.h` with a class template for each family of signatures it serves, its
Work (`cpu/attention.h` says what it has), and a function here that turns a schedule into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cpu.attention import estimate as attention_estimate
from tilewright.backends.cpu.attention import space
from tilewright.backends.cpu.attention.space import dot_step
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec

Fields = Mapping[str, object]  # of a Config, each as C++ writes it

# Peak resident size of one compile of our largest kernels, rounded up.
_COMPILE_MEMORY = {"gcc": 200 << 20, "clang": 300 << 20, "zig": 350 << 20}


class Pipeline(NamedTuple):
    header: str
    works: Mapping[str, str]  # of each family of signatures
    fields: Callable[[KernelSpec], Fields]


def _tiled(spec: KernelSpec) -> Fields:
    shapes = ("tile", spec.schedule.tile), ("warp_tile", getattr(spec.schedule, "warp_tile", ()))
    return {f"{name}_{axis}": size for name, sizes in shapes for axis, size in zip("mn", sizes, strict=False)}


PIPELINES = {
    "tiled": Pipeline("attention_tiled.h", {"forward": "AttentionTiled"}, _tiled),
    "decode": Pipeline("attention_decode.h", {"forward": "AttentionDecode"}, _tiled),
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
    space = space
    template = ("tilewright.backends.cpu", "templates/attention.cpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {"header": found.header, "work": found.works[spec.signature.family], "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return attention_estimate.seconds(spec, problem, threads)

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch; none of plain loops."""
        from tilewright.inspect.x86 import FMA

        arch = arch_by_name(spec.arch)
        if spec.schedule.pipeline == "loops" or "fma" not in arch.features:
            return Promises()
        return Promises((*FMA, "vdpbf16ps") if dot_step(spec.signature, arch) == 2 else FMA)

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return _COMPILE_MEMORY.get(compiler, max(_COMPILE_MEMORY.values()))


KERNELS = CpuAttention()
