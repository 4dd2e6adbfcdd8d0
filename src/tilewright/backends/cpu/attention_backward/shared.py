"""What the CPU's families of attention's gradients share: what a template is filled with, and promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cpu.vectors import dot_step_of
from tilewright.backends.families import Family
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

Pair = tuple[int, int]
SHAPES = {"tile": ("m", "n"), "warp_tile": ("m", "n")}

# Peak resident size of one compile of our largest kernels, rounded up.
_COMPILE_MEMORY = {"gcc": 200 << 20, "clang": 300 << 20, "zig": 350 << 20}


def dot_step(signature: AttentionBackwardSignature, arch: Arch) -> int:
    """Elements one multiply-accumulate instruction eats in a lane."""
    return dot_step_of(arch, signature.dtype)


class CpuAttentionBackwardFamily(Family):
    """A family of kernels on the CPU: all are filled into one template."""

    template = ("tilewright.backends.cpu.attention_backward", "attention_backward.cpp.jinja")

    def work(self, spec: KernelSpec) -> str:
        """The C++ class template that does the work, in the namespace tw."""
        raise NotImplementedError

    def config(self, schedule: Any) -> Mapping[str, int]:
        """What the kernel reads of its schedule."""
        return {}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "pipeline": self.name, "work": self.work(spec), "config": self.config(spec.schedule),
            "limits": self.numbers(spec),
        }  # fmt: skip

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return _COMPILE_MEMORY.get(compiler, max(_COMPILE_MEMORY.values()))
