"""All the CPU backend knows of convolution.

A pipeline is a header `cpu/conv_PIPELINE.h` with a class template, its Work (`cpu/conv.h` says what it has), and a
function here that turns a schedule into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cpu import conv_estimate
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

Fields = Mapping[str, object]  # of a Config, each as C++ writes it


class Pipeline(NamedTuple):
    header: str
    work: str
    fields: Callable[[KernelSpec], Fields]


PIPELINES = {
    "loops": Pipeline("conv_loops.h", "ConvLoops", lambda spec: {}),
}


class CpuConv(KernelsDefaults):
    template = ("tilewright.backends.cpu", "templates/conv.cpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {"header": found.header, "work": found.work, "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return conv_estimate.seconds(spec, problem, threads)

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


KERNELS = CpuConv()
