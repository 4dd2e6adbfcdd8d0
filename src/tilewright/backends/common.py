"""What backends share behind the contract of `tilewright.backends.base.Backend`.

A backend's folder holds modules of the same names (toolchain, driver); each is loaded when it is first asked for, so
that a cheap question stays cheap.  What is to be known of an op is asked of the op's own module.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tilewright.backends.base import (
    DeviceKind,
    ObjectRules,
    OpKernels,
    Promises,
    Source,
    Toolchain,
    kernels_of,
    op_kernels,
)
from tilewright.backends.instance import text_of
from tilewright.ops.base import KernelSpec


class CommonBackend:
    name: str
    usual_arch: str
    language: str
    suffix: str  # of an instance file
    device: DeviceKind

    def _part(self, module: str) -> Any:
        folder = type(self).__module__.rpartition(".")[0]
        return import_module(f"{folder}.{module}")

    def kernels(self, op: str) -> OpKernels:
        return op_kernels(self.name, op)

    def render(self, spec: KernelSpec) -> Source:
        known = kernels_of(self.name, spec)
        text = text_of(spec, known.template, known.context(spec))
        return Source(f"{spec.name}{self.suffix}", text, self.language)

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return kernels_of(self.name, spec).estimate(spec, problem, threads)

    def promises(self, spec: KernelSpec) -> Promises:
        return kernels_of(self.name, spec).promises(spec)

    def toolchain(self) -> Toolchain:
        tools: Toolchain = self._part("toolchain").find_toolchain()
        return tools

    def object_rules(self, arch: str, ops: Sequence[str] = ()) -> ObjectRules:
        rules: ObjectRules = self._part("toolchain").object_rules(arch, ops)
        return rules

    def available_archs(self) -> Sequence[str]:
        archs: Sequence[str] = self._part("driver").available_archs()
        return archs

    def why_unavailable(self) -> str:
        return str(self._part("driver").why_unavailable())

    def host_library_source(self) -> Source | None:
        return None
