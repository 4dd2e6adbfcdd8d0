"""What the CPU's families of attention's gradients share: what a template is filled with, and promises."""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.backends.cpu.families import WorkFamily
from tilewright.backends.cpu.vectors import dot_step_of
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature

Pair = tuple[int, int]
SHAPES = {"tile": ("m", "n"), "warp_tile": ("m", "n")}


def dot_step(signature: AttentionBackwardSignature, arch: Arch) -> int:
    """Elements one multiply-accumulate instruction eats in a lane."""
    return dot_step_of(arch, signature.dtype)


class CpuAttentionBackwardFamily(WorkFamily):
    """A family of kernels on the CPU: all are filled into one template."""

    template = ("tilewright.backends.cpu.attention_backward", "attention_backward.cpp.jinja")
