"""What kernel families of every op share on CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tilewright.backends.families import Family
from tilewright.ops.base import KernelSpec


class CpuFamily(Family):
    # Peak resident size of one compile of our largest kernels, rounded up.
    compile_bytes: ClassVar[Mapping[str, int]] = {"gcc": 200 << 20, "clang": 300 << 20, "zig": 350 << 20}

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return self.compile_bytes.get(compiler, max(self.compile_bytes.values()))


class WorkFamily(CpuFamily):
    """A family whose kernels are filled into one template of their op: a C++ class template, and its Config."""

    def work(self, spec: KernelSpec) -> str:
        """The C++ class template that does the work, in the namespace tw."""
        raise NotImplementedError

    def config(self, schedule: Any) -> Mapping[str, int]:
        """What the kernel reads of its schedule."""
        return {}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "family": self.name, "work": self.work(spec), "config": self.config(spec.schedule),
            "limits": self.numbers(spec),
        }  # fmt: skip
