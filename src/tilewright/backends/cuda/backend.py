"""The CUDA backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import settings
from tilewright.backends.base import DeviceKind
from tilewright.backends.common import CommonBackend
from tilewright.ops.base import KernelSpec

if TYPE_CHECKING:
    from tilewright.inspect.report import Inspection


class CudaBackend(CommonBackend):
    name = "cuda"
    usual_arch = "sm_90a"
    language = "cuda"
    suffix = ".cu"
    wrapper_suffix = ".cu"
    device = DeviceKind("tilewright.runtime.cuda", dlpack=2, dlpack_more=(13,), dlpack_pinned=(3,), torch="cuda")

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import nvidia

        return nvidia.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.backends.cuda import places
        from tilewright.inspect import nvidia

        tool = settings.current().objdump or str(places.tool("nvdisasm") or "")
        if spec is None:
            return nvidia.inspect(path, tool)
        promised = self.promises(spec)
        shared = {spec.name: promised.dynamic_shared_bytes}
        inspection = nvidia.inspect(path, tool, spec.arch, shared, promised.multiply)
        return inspection.of(spec, promised.multiply, promised.copies)

    def listing(self, path: Path) -> str:
        from tilewright.backends.cuda import places
        from tilewright.inspect import nvidia

        return nvidia.listings(path, settings.current().objdump or str(places.tool("nvdisasm") or ""))

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        from tilewright.inspect import nvidia

        return nvidia.holds(path, beginnings)
