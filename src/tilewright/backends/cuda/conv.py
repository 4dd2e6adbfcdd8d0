"""All the CUDA backend knows of convolution.

A pipeline is two headers of `cuda/` (`cuda/conv.h` says what they have) and a function here that turns a schedule into
the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cuda import conv_estimate
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem

Fields = Mapping[str, object]  # of a Config, each as C++ writes it


class Pipeline(NamedTuple):
    device_header: str
    host_header: str
    device: str  # the macro that names its functions
    host: str  # the struct of the host's half
    fields: Callable[[KernelSpec], Fields]
    beside: tuple[str, ...] = ()  # what the names of its other functions end in


PIPELINES = {
    "loops": Pipeline("conv_loops.h", "conv_host_loops.h", "TW_DEVICE_CONV_LOOPS", "HostConvLoops", lambda spec: {}),
}


class CudaConv(KernelsDefaults):
    template = ("tilewright.backends.cuda", "templates/conv.cu.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {**found._asdict(), "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return conv_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


KERNELS = CudaConv()
