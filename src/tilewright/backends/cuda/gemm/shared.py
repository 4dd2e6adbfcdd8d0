"""What the CUDA families of GEMM share: what a template is filled with, copies of operands, the packed B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.families import Family
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.copies import CopiedSizes, whole_rows
from tilewright.ops.gemm.family import GemmFamily
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.schedule import ONE, Shape
from tilewright.ops.gemm.spec import GemmSignature

TENSOR_INPUTS = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "tf32")
TILE_SCHEDULERS = {"data_parallel": 0, "stream_k": 1, "split_k": 2, "cluster_k": 3}  # `TileScheduler` of rules.h
LINE_BYTES = 16  # rows of copies are multiples of this: what TMA asks for
COMPILE_MEMORY = 600 << 20


def tile_numbers(tile: Shape) -> dict[str, int]:
    return dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True))


def flag(on: bool) -> str:
    return "true" if on else "false"


def tensor_tiles(signature: GemmSignature, arch: Arch) -> bool:
    """Whether the pool `tiny` has a kernel for tensor cores instead of the fallback."""
    return "wgmma" in arch.features and signature.dtype_a in ("bf16", "fp16")


class CudaGemmFamily(Family, GemmFamily):
    """A family of GEMM kernels on NVIDIA GPUs: all are filled into one template."""

    template = ("tilewright.backends.cuda.gemm", "gemm.cu.jinja")
    reads_packed = False
    header = ""  # of its device function, where it is not its own kernel.h

    def config(self, spec: KernelSpec) -> Mapping[str, object]:
        """What both halves of the kernel read of its schedule, each as C++ writes it."""
        return {}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "family": self.name,
            "header": self.header or f"cuda/gemm/{self.name}/kernel.h",
            "arch": arch_facts(spec.arch),
            "config": self.config(spec),
            "limits": self.numbers(spec),
        }

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY

    def unpacked(self, signature: GemmSignature) -> Iterator[Violation]:
        """Of families that read B in place."""
        if signature.variant == "preshuffle":
            yield Violation("nv-packed", f"{self.name} reads B as it is, not packed", "use tma_ws, or give b unpacked")

    def grains(self, schedule: Any) -> Shape:
        """Every kernel has edge code, so nothing is ever padded for the lack of it."""
        return ONE

    def copied_sizes(self, schedule: Any, signature: GemmSignature) -> CopiedSizes:
        """Rows TMA can read, and some k."""
        s = signature
        a, b, c = (LINE_BYTES // DTYPES[dtype].bytes for dtype in (s.dtype_a, s.dtype_b, s.dtype_c))
        return CopiedSizes(whole_rows(s.layout, (a, b, c)), short_k=1, least_k=1)

    def pack_format(self, schedule: Any) -> tuple[object, ...]:
        """Swizzled atoms of eight columns by 128 bytes of k (copies/pack.h): the same for every tile."""
        return ("atoms", 8, 128)

    def residency(self, spec: KernelSpec) -> Residency:
        """How the blocks of a kernel occupy the device, as learned models see it."""
        return Residency()
