"""The CUDA backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.backends.cuda import estimate
from tilewright.backends.gpu_backend import GpuBackend
from tilewright.inspect.report import Inspection
from tilewright.ops.base import KernelSpec


class CudaBackend(GpuBackend):
    name = "cuda"
    usual_arch = "sm_90a"

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return estimate.seconds(spec, problem)

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import nvidia

        return nvidia.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.backends.cuda import places
        from tilewright.inspect import nvidia

        tool = settings.current().objdump or str(places.tool("nvdisasm") or "")
        if spec is None:
            return nvidia.inspect(path, tool)
        found = nvidia.inspect(path, tool, spec.arch, {spec.name: _dynamic_shared(spec)})
        return found.of(spec, self.promises(spec), _copy_promises(spec))

    def promises(self, spec: KernelSpec) -> tuple[str, ...]:
        """Tensor cores for all but plain loops and exact fp32, which no tensor core computes."""
        from tilewright.inspect import nvidia

        if spec.schedule.pipeline == "tma_ws":
            return nvidia.WARPGROUP
        plain = spec.schedule.pipeline not in ("skinny", "multistage") or spec.signature.dtype_a == "fp32"
        return () if plain else nvidia.WARP

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        from tilewright.inspect import nvidia

        return nvidia.holds(path, beginnings)


def _dynamic_shared(spec: KernelSpec) -> int:
    """What each launch asks for; the other pipelines know their shared memory when they are compiled."""
    from tilewright.ops.gemm import nvidia_multistage, nvidia_schedules

    if spec.schedule.pipeline == "tma_ws":
        return nvidia_schedules.shared_bytes(spec.schedule)
    if spec.schedule.pipeline == "multistage":
        return nvidia_multistage.shared_bytes(spec.signature, spec.schedule)
    return 0


def _copy_promises(spec: KernelSpec) -> tuple[str, ...]:
    """Operands come through the copy engine; results that are not fused with anything leave through it, where asked."""
    if spec.schedule.pipeline != "tma_ws":
        return ()
    plain = spec.signature.epilogue == "PassThrough" and spec.signature.num_d == 0
    return ("UTMALDG", "UTMASTG") if spec.schedule.store == "tma" and plain else ("UTMALDG",)
