"""All the CUDA backend knows of GEMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.cuda.gemm import estimate as gemm_estimate
from tilewright.backends.cuda.gemm import multistage as nvidia_multistage
from tilewright.backends.cuda.gemm import proposals as nvidia_schedules
from tilewright.backends.cuda.gemm import space
from tilewright.backends.cuda.gemm.native import NATIVE
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule, NvidiaSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops.base import KernelSpec

COMPILE_MEMORY = 600 << 20


class CudaGemm(KernelsDefaults):
    space = space
    template = ("tilewright.backends.cuda", "templates/gemm.cu.jinja")
    native = NATIVE

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """What every pipeline's Config says, whether its schedule has a word on it or not."""
        h: NvidiaSchedule = spec.schedule
        tma = h if isinstance(h, TmaWsSchedule) else None
        staged = h if isinstance(h, TmaWsSchedule | MultistageSchedule) else None
        return {
            "arch": arch_facts(spec.arch),
            "pipeline": h.pipeline,
            "header": "gpu/gemm_loops.h" if isinstance(h, GpuLoopsSchedule) else f"cuda/gemm/{h.pipeline}/kernel.h",
            "stages": staged.stages if staged else 0,
            "deal": staged.dealing if staged else "tiles",
            "cluster": tma.cluster if tma else (1, 1),
            "pingpong": tma is not None and tma.grouping == "pingpong",
            "turned": tma is not None and tma.turned,
            "tma_store": tma is not None and tma.store == "tma",
            "few_columns": isinstance(h, SkinnySchedule) and h.few == "columns",
        }

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return gemm_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(_multiply(spec), _copies(spec), _dynamic_shared(spec))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def _multiply(spec: KernelSpec) -> tuple[str, ...]:
    """Tensor cores for all but plain loops and exact fp32, which no tensor core computes."""
    from tilewright.inspect import nvidia

    if isinstance(spec.schedule, TmaWsSchedule):
        return nvidia.WARPGROUP
    plain = isinstance(spec.schedule, GpuLoopsSchedule) or spec.signature.dtype_a == "fp32"
    return () if plain else nvidia.WARP


def _copies(spec: KernelSpec) -> tuple[str, ...]:
    """Operands come through the copy engine; results leave through it, where asked."""
    if not isinstance(spec.schedule, TmaWsSchedule):
        return ()
    return ("UTMALDG", "UTMASTG") if spec.schedule.store == "tma" else ("UTMALDG",)


def _dynamic_shared(spec: KernelSpec) -> int:
    """What each launch asks for; `loops` knows its shared memory when it is compiled."""
    if isinstance(spec.schedule, TmaWsSchedule):
        return nvidia_schedules.shared_bytes(spec.signature, spec.schedule)
    if isinstance(spec.schedule, SkinnySchedule):
        return nvidia_schedules.skinny_bytes(spec.schedule)
    if isinstance(spec.schedule, MultistageSchedule):
        return nvidia_multistage.shared_bytes(spec.signature, spec.schedule)
    return 0


KERNELS = CudaGemm()
