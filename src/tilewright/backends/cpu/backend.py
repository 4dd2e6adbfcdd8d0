"""The CPU backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import packaged, settings
from tilewright.arch import runnable_host_archs
from tilewright.backends.base import DeviceKind, Promises, Source
from tilewright.backends.common import CommonBackend
from tilewright.ops.base import KernelSpec

if TYPE_CHECKING:
    from tilewright.inspect.report import Inspection


class CpuBackend(CommonBackend):
    name = "cpu"
    usual_arch = "generic"
    language = "c++"
    suffix = ".cpp"
    wrapper_suffix = ".cpp"
    device = DeviceKind("tilewright.runtime.host", dlpack=1, torch="cpu")

    def include_dirs(self, ops: Sequence[str] = ()) -> tuple[Path, ...]:
        from tilewright.backends.cpu import toolchain

        return toolchain.include_dirs(ops)

    def available_archs(self) -> Sequence[str]:
        return [arch.name for arch in runnable_host_archs()]

    def why_unavailable(self) -> str:
        return ""

    def promises(self, spec: KernelSpec) -> Promises:
        # Flags of the user's own may forbid what the arch has, and -O0 does.
        return Promises() if settings.current().cxxflags else super().promises(spec)

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import x86

        return x86.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.inspect import x86

        if spec is None:
            return x86.inspect(path)
        promised = self.promises(spec).multiply
        return x86.inspect(path, arch=spec.arch, promised=promised).of(spec, promised)

    def listing(self, path: Path) -> str:
        from tilewright.inspect import disassembly

        return disassembly.listing(path, disassembly.find_disassembler())

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        from tilewright.inspect import x86

        return x86.holds(path, beginnings)

    def host_library_source(self) -> Source | None:
        text = packaged.read_text("tilewright.backends.cpu", "host/team.cpp")
        return Source("tilewright_team.cpp", text, "c++")
