"""The HIP backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.backends.base import DeviceKind, Source
from tilewright.backends.common import CommonBackend
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec

if TYPE_CHECKING:
    from tilewright.inspect.report import Inspection


class HipBackend(CommonBackend):
    name = "hip"
    usual_arch = "gfx942"
    language = "hip"
    suffix = ".hpp"
    wrapper_suffix = ".cpp"
    device = DeviceKind("tilewright.runtime.hip", dlpack=10, dlpack_pinned=(11,), torch="cuda")

    def render(self, spec: KernelSpec) -> Source:
        from tilewright.backends.hip import ck_tile

        source = super().render(spec)
        return replace(source, headers=ck_tile.chosen()) if ck_tile.is_used(source.text) else source

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import amdgpu

        return amdgpu.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.inspect import amdgpu

        if spec is None:
            return amdgpu.inspect(path, _disassemblers())
        promised = self.promises(spec)
        inspection = amdgpu.inspect(path, _disassemblers(), spec.arch, promised.multiply, promised.copies)
        return inspection.of(spec, promised.multiply, promised.copies)

    def read_code(self, path: Path, spec: KernelSpec) -> Mapping[str, Any]:
        """Of a built kernel, for its manifest: `waits`, and `code_model` where a main loop multiplies.

        InspectionError (`missing-wait`) where a register is touched before what writes it was waited for.
        """
        from tilewright.inspect import amdgpu, demand_waits

        inspection = demand_waits(self.inspect(path, spec))
        model = amdgpu.slowest_model(inspection.functions) if self.promises(spec).multiply else None
        checked = all(function.waits is not None for function in inspection.functions)
        unread = "; ".join(inspection.notes) or "the disassembler does not know every instruction"
        waits = "kept" if checked else f"undecided: {unread}"
        return {"waits": waits} if model is None else {"waits": waits, "code_model": model.to_dict()}

    def listing(self, path: Path) -> str:
        from tilewright.inspect import amdgpu

        return amdgpu.listings(path, _disassemblers())

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
