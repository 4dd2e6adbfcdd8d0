"""What kernels of convolutions on AMD GPUs share that multiply in tiles.

Vectors of operands are a second axis beside the tiles: channels that are whole eights are read eight at a time, others
by kernels that read fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.backends.families import Family
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import OP, ConvSignature

Shape = tuple[int, int, int]

# pointwise: windows of one tap, which move pixel by pixel; copied: any memory, in copies that the kernel makes
SPECIALS = ("any", "pointwise", "copied")
MERGED = ((4, 16), (8, 8), (16, 4), (32, 1))  # groups that are one product, and their channels: depthwise are the last
EXHAUSTIVE = "exhaustive"  # the pool that holds `full` and turns every axis further
LOOPS_MEMORY = 300 << 20  # peak resident size of one compile without CK Tile's headers, rounded up
TEMPLATE = ("tilewright.backends.hip.conv", "conv.hpp.jinja")
_ANY_ARCH = "gfx942"  # which operands a kernel copies does not depend on it
NUMBERS, SWITCHES = 6, 4  # fields of a line of the generated file


def lines_of(fields: Mapping[str, Any], count: int) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """Fields as the template writes them, so many to a line."""
    each = tuple(fields.items())
    return tuple(each[at : at + count] for at in range(0, len(each), count))


def square_warp_tiles(signature: ConvSignature, arch: Arch) -> tuple[Shape, ...]:
    """Matrix instructions of the arch for the type; the lopsided ones never win."""
    known = (arch.warp_tiles or {}).get(f"{signature.dtype}_{signature.dtype}_{signature.dtype_acc}", ())
    return tuple(tile for tile in known if tile[0] == tile[1])


def by_ck_tile(signature: ConvSignature, arch: Arch) -> bool:
    """Whether CK Tile's headers have the product; elsewhere tiles of our own are proposed."""
    # Gradients of fp32 are read from LDS transposed, which gfx950 has no instruction for: amd-transposed-load.
    transposed = signature.dtype == "fp32" and signature.variant != "forward" and "lds-transpose" in arch.features
    return bool(square_warp_tiles(signature, arch)) and "wmma" not in arch.features and not transposed


class TiledFamily(Family, ConvFamily):
    """Kernels with `tile`, `vectors`, `split_k`, `special` and `merged`."""

    template = TEMPLATE
    own_kernel: ClassVar[Mapping[str, str]] = {"copied": "ConvCopied"}  # the C++ class, by what is special

    def loads(self, signature: ConvSignature, schedule: Any) -> tuple[int, int]:
        """Elements of one load of A and of B."""
        raise NotImplementedError

    def threads(self, signature: ConvSignature, schedule: Any) -> int:
        """Of a block."""
        raise NotImplementedError

    def violations(self, signature: ConvSignature, schedule: Any, arch: Arch) -> Iterator[Violation]:
        if schedule.split_k > 1 and signature.variant != "backward_weight":
            message = f"split_k {schedule.split_k} of {signature.variant}: its k is short"
            yield Violation("amd-split-k", message, "use split_k 1, or backward_weight")
        if schedule.merged > 1 and signature.variant == "backward_weight":
            message = (
                f"merged {schedule.merged} of backward_weight: filters of a group have no gradients of another's "
                "channels"
            )
            yield Violation("amd-merged", message, "use merged 1")

    def kernel(self, schedule: Any) -> str:
        """The C++ class of a kernel."""
        return self.own_kernel.get(schedule.special, "Conv")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h = spec.schedule
        read_a, read_b = self.loads(spec.signature, h)
        return {
            **dict(zip(("tile_m", "tile_n", "tile_k"), h.tile, strict=True)), "split_k": h.split_k,
            "threads": self.threads(spec.signature, h), "read_a": read_a, "read_b": read_b,
            "pointwise": int(h.special == "pointwise"), "copies": int(h.special == "copied"), "merged": h.merged,
        }  # fmt: skip

    def copies(self, schedule: Any, problem: ConvProblem) -> str:
        """Which of x, w and y a kernel copies, as limits.h says it."""
        if schedule.special != "copied" or problem.batch == 0:
            return ""
        spec = KernelSpec(OP, problem.signature, schedule, _ANY_ARCH)
        bits: int = import_module("tilewright.native.one_kernel").call(spec, problem, "tw_select_copies")
        return "".join(name for bit, name in enumerate("xwy") if bits >> bit & 1)

    def remarks(self, schedule: Any, problem: ConvProblem) -> list[str]:
        copies = ", ".join(self.copies(schedule, problem))
        return [f"copies {copies} to dense channels-last memory in its workspace, the result back"] if copies else []
