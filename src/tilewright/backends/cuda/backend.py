"""The CUDA backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.backends.base import ObjectRules, Source, Toolchain
from tilewright.backends.cuda import estimate
from tilewright.ops.base import KernelSpec


class CudaBackend:
    name = "cuda"

    def render(self, spec: KernelSpec) -> Source:
        from tilewright.backends.cuda import render

        return render.render(spec)

    def toolchain(self) -> Toolchain:
        from tilewright.backends.cuda.toolchain import find_toolchain

        return find_toolchain()

    def object_rules(self, arch: str) -> ObjectRules:
        from tilewright.backends.cuda.toolchain import object_rules

        return object_rules(arch)

    def available_archs(self) -> Sequence[str]:
        from tilewright.backends.cuda.driver import available_archs

        return available_archs()

    def why_unavailable(self) -> str:
        from tilewright.backends.cuda.driver import why_unavailable

        return why_unavailable()

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return estimate.seconds(spec, problem)

    def host_library_source(self) -> Source | None:
        return None
