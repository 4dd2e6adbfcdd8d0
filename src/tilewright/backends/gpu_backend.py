"""What the backends of GPUs share behind the contract of `tilewright.backends.base.Backend`.

A vendor's folder holds modules of the same names (render, toolchain, driver); each is loaded when it is first asked
for, so that a cheap question stays cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tilewright.backends.base import ObjectRules, Source, Toolchain
from tilewright.ops.base import KernelSpec


class GpuBackend:
    name: str  # of the backend and of its folder

    def _part(self, module: str) -> Any:
        return import_module(f"tilewright.backends.{self.name}.{module}")

    def render(self, spec: KernelSpec) -> Source:
        source: Source = self._part("render").render(spec)
        return source

    def toolchain(self) -> Toolchain:
        found: Toolchain = self._part("toolchain").find_toolchain()
        return found

    def object_rules(self, arch: str) -> ObjectRules:
        rules: ObjectRules = self._part("toolchain").object_rules(arch)
        return rules

    def available_archs(self) -> Sequence[str]:
        archs: Sequence[str] = self._part("driver").available_archs()
        return archs

    def why_unavailable(self) -> str:
        return str(self._part("driver").why_unavailable())

    def host_library_source(self) -> Source | None:
        return None
