"""What families of attention's gradients on AMD GPUs share: how the template is filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.families import Family
from tilewright.ops.base import KernelSpec

LOOPS_MEMORY = 512 << 20  # peak resident size of one compile, rounded up


class HipAttentionBackwardFamily(Family):
    """A family of kernels on AMD GPUs: all are filled into one template."""

    template = ("tilewright.backends.hip.attention_backward", "attention_backward.hpp.jinja")

    def host(self, spec: KernelSpec) -> str:
        """The class template of kernel.h that launches."""
        raise NotImplementedError

    def header(self, spec: KernelSpec) -> str:
        """The folder of kernel.h."""
        return self.name

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "family": self.name, "header": self.header(spec), "host": self.host(spec), "fields": {}, "route": "",
            "pipeline": "", "limits": self.numbers(spec),
        }  # fmt: skip

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return LOOPS_MEMORY
