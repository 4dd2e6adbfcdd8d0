"""The CPU backend behind the generic contract of `tilewright.backends.base.Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from tilewright.arch import runnable_host_archs
from tilewright.backends.base import ObjectRules, Source, Toolchain
from tilewright.backends.cpu import estimate, render
from tilewright.ops.base import KernelSpec


class CpuBackend:
    name = "cpu"

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

    def host_library_source(self) -> Source | None:
        text = resources.files("tilewright.backends.cpu").joinpath("host/team.cpp").read_text(encoding="utf-8")
        return Source("tilewright_team.cpp", text, "c++")
