"""The HIP backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.gpu_backend import GpuBackend
from tilewright.backends.hip import estimate
from tilewright.errors import ToolchainError
from tilewright.inspect.report import Inspection
from tilewright.ops.base import KernelSpec


class HipBackend(GpuBackend):
    name = "hip"
    usual_arch = "gfx942"

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return estimate.seconds(spec, problem)

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import amdgpu

        return amdgpu.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.inspect import amdgpu

        found = amdgpu.inspect(path, _disassemblers(), spec.arch if spec is not None else "")
        return found.of(spec, self.promises(spec)) if spec is not None else found

    def promises(self, spec: KernelSpec) -> tuple[str, ...]:
        """Matrix instructions where the arch has them; none of the plain loops of `generic`."""
        if spec.schedule.pipeline == "generic":
            return ()
        features = arch_by_name(spec.arch).features
        return tuple(name for feature, names in _MATRIX.items() if feature in features for name in names)

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        from tilewright.inspect import amdgpu

        return amdgpu.holds(path, beginnings, _disassemblers())


def _disassemblers() -> list[Path]:
    """That of the compiler: an older one may not know the newest GPUs."""
    from tilewright.backends.hip.toolchain import find_toolchain

    try:
        return [find_toolchain().tool("llvm-objdump")]
    except ToolchainError:
        return []


# The matrix instructions of an arch by its feature.
_MATRIX = {"mfma": ("v_mfma_", "v_smfmac_"), "wmma": ("v_wmma_", "v_swmmac_")}
