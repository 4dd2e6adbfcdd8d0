"""What backends share behind the contract of `tilewright.backends.base.Backend`.

A backend's folder holds modules of the same names (toolchain, driver); each is loaded when it is first asked for, so
that a cheap question stays cheap.  What is to be known of an op is asked of the op's own module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from numbers import Real
from typing import Any

from tilewright import plugins
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
from tilewright.errors import shown
from tilewright.ops.base import KernelSpec


def _demand_seconds(module: str, spec: KernelSpec, seconds: Any) -> None:
    """Estimates of other packages are compared with ours: anything but a time would win or lose by chance."""
    if isinstance(seconds, Real) and 0.0 < float(seconds) < math.inf:
        return
    raise plugins.fault(
        module,
        f"the estimate for {spec.name} is {shown(seconds)}, which is not a positive number of seconds",
        rule="plugin",
        value=shown(seconds),
        remedy="return seconds from estimate() (docs/adding-a-kernel-family.md)",
    )


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
        estimate = kernels_of(self.name, spec).estimate
        seconds = estimate(spec, problem, threads)
        if not plugins.is_ours(estimate.__module__):
            _demand_seconds(estimate.__module__, spec, seconds)
        return seconds

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
