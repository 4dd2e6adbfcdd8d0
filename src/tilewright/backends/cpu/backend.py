"""The CPU backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.arch import runnable_host_archs
from tilewright.backends.base import ObjectRules, Source, Toolchain
from tilewright.backends.cpu import estimate, render
from tilewright.dtypes import DTYPES
from tilewright.inspect.report import Inspection
from tilewright.ops.base import KernelSpec


class CpuBackend:
    name = "cpu"
    usual_arch = "generic"

    def render(self, spec: KernelSpec) -> Source:
        return render.render(spec)

    def toolchain(self) -> Toolchain:
        from tilewright.backends.cpu.toolchain import find_toolchain

        return find_toolchain()

    def object_rules(self, arch: str) -> ObjectRules:
        from tilewright.backends.cpu.toolchain import object_rules

        return object_rules(arch)

    def available_archs(self) -> Sequence[str]:
        return [one.name for one in runnable_host_archs()]

    def why_unavailable(self) -> str:
        return ""

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return estimate.seconds(spec, problem, threads)

    def recognises(self, data: bytes) -> bool:
        from tilewright.inspect import x86

        return x86.recognises(data)

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        from tilewright.inspect import x86

        found = x86.inspect(path, arch=spec.arch if spec is not None else "")
        return found.of(spec, self.promises(spec)) if spec is not None else found

    def promises(self, spec: KernelSpec) -> tuple[str, ...]:
        """Multiply-add instructions of the arch; none of the plain loops of `generic`."""
        from tilewright.inspect.x86 import FMA

        features, dtype = arch_by_name(spec.arch).features, spec.signature.dtype_a
        # Flags of the user's own may forbid what the arch has, and -O0 does.
        if spec.schedule.pipeline == "generic" or settings.current().cxxflags:
            return ()
        if DTYPES[dtype].kind == "int":
            return ("vpdp",) if "vnni" in features else ()
        if "fma" not in features:
            return ()
        return (*FMA, "vdpbf16ps") if dtype == "bf16" and "bf16" in features else FMA

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        from tilewright.inspect import x86

        return x86.holds(path, beginnings)

    def host_library_source(self) -> Source | None:
        text = resources.files("tilewright.backends.cpu").joinpath("host/team.cpp").read_text(encoding="utf-8")
        return Source("tilewright_team.cpp", text, "c++")
