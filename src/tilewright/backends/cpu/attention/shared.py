"""What the CPU's attention families share: dot steps, what a template is filled with, promises."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cpu.families import WorkFamily
from tilewright.backends.cpu.vectors import dot_step_of
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

BLOCK_BYTES = 1 << 18  # scores of a block: beyond, they leave the second-level cache
Pair = tuple[int, int]
SHAPES = {"tile": ("m", "n"), "warp_tile": ("m", "n")}


def dot_step(signature: AttentionSignature, arch: Arch) -> int:
    """Elements one multiply-accumulate instruction eats in a lane."""
    return dot_step_of(arch, signature.dtype_q, signature.dtype_kv)


def left_to_loops(pipeline: str, signature: AttentionSignature) -> Iterator[Violation]:
    """What kernels of vectors have no code for."""
    s = signature
    lacks = [name for name, has in (("dropout", s.dropout), ("scales", s.scales != "none"),
                                    ("vectorised pages", s.pages == "vectorised")) if has]  # fmt: skip
    if lacks:
        yield Violation("cpu-feature", f"pipeline {pipeline} has no {' and no '.join(lacks)}", "use loops")


class CpuAttentionFamily(WorkFamily, AttentionFamily):
    """A family of attention kernels on the CPU: all are filled into one template."""

    template = ("tilewright.backends.cpu.attention", "attention.cpp.jinja")

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch."""
        from tilewright.inspect.x86 import FMA

        arch = arch_by_name(spec.arch)
        if "fma" not in arch.features:
            return Promises()
        return Promises((*FMA, "vdpbf16ps") if dot_step(spec.signature, arch) == 2 else FMA)
