"""What the CPU's GEMM families share: dot steps, register blocks, what a template is filled with, promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cpu.families import CpuFamily
from tilewright.backends.cpu.vectors import dot_step_of
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.family import GemmFamily
from tilewright.ops.gemm.spec import GemmSignature

# Rows and vectors of the register blocks worth having on an arch, best first, by vector registers.
BLOCKS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((14, 2), (8, 3), (12, 2), (6, 4), (9, 3), (28, 1)),
    16: ((6, 2), (4, 2), (3, 3), (12, 1)),
}


def dot_step(signature: GemmSignature, arch: Arch) -> int:
    """k elements one multiply-accumulate instruction eats: the warp tile's k."""
    return dot_step_of(arch, signature.dtype_a, signature.dtype_b)


def preshuffled_alone(signature: GemmSignature) -> Iterator[Violation]:
    """Of families that read B in place."""
    if signature.variant == "preshuffle":
        yield Violation(
            "cpu-preshuffle", "variant preshuffle with a pipeline that reads B unpacked", "use pipeline preshuffle"
        )


class CpuGemmFamily(CpuFamily, GemmFamily):
    """A family of GEMM kernels on the CPU: all are filled into one template."""

    compile_bytes: ClassVar[Mapping[str, int]] = {"gcc": 160 << 20, "clang": 250 << 20, "zig": 300 << 20}

    template = ("tilewright.backends.cpu.gemm", "gemm.cpp.jinja")

    def work(self, spec: KernelSpec) -> str:
        """The C++ class that does the work, in the namespace tw."""
        raise NotImplementedError

    def config(self, schedule: Any) -> Mapping[str, int]:
        """What the kernel reads of its schedule; all families lay their threads out as `packed` does."""
        return {}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        h = spec.schedule
        axes = zip("mnk", h.tile, h.warp_tile, strict=True)
        shapes = {name: size for axis, tile, warp in axes for name, size in
                  ((f"tile_{axis}", tile), (f"warp_tile_{axis}", warp))}  # fmt: skip
        config = {**shapes, "pad_n": 1, "split_k": 1, "unroll": 1, "prefetch": 0, **self.config(h)}
        return {"family": self.name, "work": self.work(spec), "config": config, "limits": self.numbers(spec)}

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch."""
        from tilewright.inspect.x86 import FMA

        features, dtype = arch_by_name(spec.arch).features, spec.signature.dtype_a
        if DTYPES[dtype].kind == "int":
            return Promises(("vpdp",)) if "vnni" in features else Promises()
        if "fma" not in features:
            return Promises()
        return Promises((*FMA, "vdpbf16ps") if dtype == "bf16" and "bf16" in features else FMA)
