"""All the CPU backend knows of convolution.

A pipeline is a header `cpu/conv_PIPELINE.h` with a class template, its Work (`cpu/conv.h` says what it has), and a
function here that turns a schedule into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cpu.conv import estimate as conv_estimate
from tilewright.backends.cpu.conv import space
from tilewright.backends.cpu.conv.space import dot_step
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

Fields = Mapping[str, object]  # of a Config, each as C++ writes it

# Peak resident size of one compile of our largest kernels, rounded up.
_COMPILE_MEMORY = {"gcc": 200 << 20, "clang": 300 << 20, "zig": 350 << 20}


class Pipeline(NamedTuple):
    header: str
    work: str
    fields: Callable[[KernelSpec], Fields]


def _block(spec: KernelSpec) -> Fields:
    return {f"warp_tile_{axis}": size for axis, size in zip("mnk", spec.schedule.warp_tile, strict=True)}


def _tiled(spec: KernelSpec) -> Fields:
    axes = spec.schedule.axis_names["tile"]
    return {**{f"tile_{axis}": size for axis, size in zip(axes, spec.schedule.tile, strict=True)}, **_block(spec)}


PIPELINES = {
    "implicit": Pipeline("conv_implicit.h", "ConvImplicit", _tiled),
    "planar": Pipeline("conv_planar.h", "ConvPlanar", lambda spec: {**_block(spec), "planes": spec.schedule.planes}),
    "winograd": Pipeline(
        "conv_winograd.h", "ConvWinograd", lambda spec: {**_tiled(spec), "results": spec.schedule.results}
    ),
    "outer": Pipeline("conv_outer.h", "ConvOuter", lambda spec: {**_tiled(spec), "split_k": spec.schedule.split_k}),
    "direct_weight": Pipeline("conv_direct_weight.h", "ConvDirectWeight", _tiled),
    "lanes": Pipeline("conv_lanes.h", "ConvLanes", _block),
    "lanes_weight": Pipeline("conv_lanes_weight.h", "ConvLanesWeight", _block),
    "loops": Pipeline("conv_loops.h", "ConvLoops", lambda spec: {}),
}


class CpuConv(KernelsDefaults):
    space = space
    template = ("tilewright.backends.cpu", "templates/conv.cpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        work = f"tw::{found.work}<Config>"
        if spec.schedule.pipeline != "loops":  # which reads any memory
            work = f"tw::ConvTurned<Config, {work}>"
        return {"header": found.header, "work": work, "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return conv_estimate.seconds(spec, problem, threads)

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch; none of plain loops."""
        from tilewright.inspect.x86 import FMA

        arch, pipeline = arch_by_name(spec.arch), spec.schedule.pipeline
        if pipeline == "loops" or "fma" not in arch.features:
            return Promises()
        if pipeline != "implicit":
            return Promises(FMA)
        if spec.signature.dtype == "int8":
            return Promises(("vpdp",)) if "vnni" in arch.features else Promises()
        return Promises((*FMA, "vdpbf16ps") if dot_step(spec.signature, arch) == 2 else FMA)

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return _COMPILE_MEMORY.get(compiler, max(_COMPILE_MEMORY.values()))


KERNELS = CpuConv()
