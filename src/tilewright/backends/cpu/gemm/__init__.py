"""All the CPU backend knows of GEMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cpu.gemm import estimate as gemm_estimate
from tilewright.backends.cpu.gemm import space
from tilewright.backends.cpu.gemm.native import NATIVE
from tilewright.backends.cpu.gemm.schedules import CpuDirectSchedule, CpuLoopsSchedule, CpuPackedSchedule, CpuSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.schedule import ALL_EDGES

# Peak resident size of one compile of our largest kernels, rounded up.
_COMPILE_MEMORY = {"gcc": 160 << 20, "clang": 250 << 20, "zig": 300 << 20}


class CpuGemm(KernelsDefaults):
    space = space
    template = ("tilewright.backends.cpu", "templates/gemm.cpp.jinja")
    native = NATIVE

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """What every pipeline's Config says, whether its schedule has a word on it or not."""
        schedule: CpuSchedule = spec.schedule
        packed = schedule if isinstance(schedule, CpuPackedSchedule) else None
        return {
            "pipeline": schedule.pipeline,
            "pad": packed.pad if packed else ALL_EDGES,
            "split_k": packed.split_k if packed else 1,
            "unroll": packed.unroll if packed else 1,
            "prefetch": 0 if isinstance(schedule, (CpuDirectSchedule, CpuLoopsSchedule)) else schedule.prefetch,
        }

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return gemm_estimate.seconds(spec, problem, threads)

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch; none of plain loops."""
        from tilewright.inspect.x86 import FMA

        features, dtype = arch_by_name(spec.arch).features, spec.signature.dtype_a
        if isinstance(spec.schedule, CpuLoopsSchedule):
            return Promises()
        if DTYPES[dtype].kind == "int":
            return Promises(("vpdp",)) if "vnni" in features else Promises()
        if "fma" not in features:
            return Promises()
        return Promises((*FMA, "vdpbf16ps") if dtype == "bf16" and "bf16" in features else FMA)

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return _COMPILE_MEMORY.get(compiler, max(_COMPILE_MEMORY.values()))


KERNELS = CpuGemm()
