"""What attention families of NVIDIA GPUs share: what wgmma and TMA ask, what threads hold, how a template is filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.cuda.pipelines import COMPILE_MEMORY, Fields
from tilewright.backends.families import Family
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

INPUTS = ("bf16", "fp16")
FEATURE_REGISTERS = 16
BLOCK_SHARED = 1024  # bytes of shared memory that a block takes itself
WGMMA_HEADS = (32, 64, 96, 128, 160, 192, 256)  # widths wgmma is spelled out for with weights in registers


class CudaAttentionFamily(Family, AttentionFamily):
    """A family of attention kernels on NVIDIA GPUs: all are filled into one template."""

    template = ("tilewright.backends.cuda.attention", "attention.cu.jinja")
    device: str  # the macro of kernel.h that names its functions
    host: str  # the struct of host.h

    def config(self, spec: KernelSpec) -> Fields:
        """What the kernel reads of its schedule, as C++ writes it."""
        return {}

    def wgmma_widths(self, spec: KernelSpec) -> tuple[int, ...]:
        """Of the matrix instructions that the kernel has; empty: not known, and the compiler reads all there are."""
        return ()

    def host_half(self, schedule: Any) -> tuple[str, str]:
        """The host's header, below tilewright/cuda/attention, and its struct."""
        return f"{self.name}/host.h", self.host

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        header, host = self.host_half(spec.schedule)
        return {
            "family": self.name, "device_header": f"attention/{self.name}/kernel.h", "device": self.device,
            "host_header": f"attention/{header}", "host": host, "fields": self.config(spec), "beside": (),
            "wgmma_widths": " || ".join(f"N == {width}" for width in self.wgmma_widths(spec)),
            "limits": {name: int(value) for name, value in self.numbers(spec).items()}, "arch": arch_facts(spec.arch),
        }  # fmt: skip

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def held(signature: AttentionSignature) -> dict[str, int]:
    """Of `Schedule` of a family with matrix instructions: its heads, and whether something is done to scores."""
    s = signature
    scored = s.bias != "none" or s.masked or s.softcap or s.dropout
    return {"head_dim": s.head_dim, "head_dim_v": s.head_dim_v, "scored": int(scored)}


def taken_by_wgmma(signature: AttentionSignature, arch: Arch) -> bool:
    """Whether the `ws` family has kernels of a signature."""
    s = signature
    two_bytes = s.dtype_q == s.dtype_kv and s.dtype_q in INPUTS
    readable = max(s.head_dim, s.head_dim_v) in WGMMA_HEADS and s.pages != "vectorised"
    return {"wgmma", "tma"} <= arch.features and two_bytes and readable


def available_bytes(ctas_per_sm: int, arch: Arch) -> int:
    """Shared memory that each of so many blocks of a multiprocessor may ask for."""
    return (arch.scratch_bytes + BLOCK_SHARED) // ctas_per_sm - BLOCK_SHARED


def engine_rules(
    pipeline: str, signature: AttentionSignature, arch: Arch, inputs: tuple[str, ...], otherwise: str
) -> Iterator[Violation]:
    """`otherwise` is the pipeline that takes what this one does not."""
    s = signature
    if not {"wgmma", "tma"} <= arch.features:
        message = f"{pipeline} needs wgmma and TMA, which {arch.name} does not have"
        yield Violation("nv-arch", message, f"use target sm_90a, or {otherwise}")
    if s.dtype_q not in inputs or s.dtype_kv != s.dtype_q:
        message = f"{pipeline} of {s.dtype_q} queries and {s.dtype_kv} keys"
        yield Violation("nv-inputs", message, f"use {' or '.join(inputs)} for both, or {otherwise}")
    if s.pages == "vectorised":
        message = "TMA reads rows of keys, not the vectorised page layout"
        yield Violation("nv-pages", message, f"use strided pages, or {otherwise}")


def feature_registers(signature: AttentionSignature) -> int:
    """What a thread holds beside the plain: for what is done to scores before the softmax, and for dropout after it."""
    changed = signature.softcap or signature.bias != "none" or signature.masked
    return FEATURE_REGISTERS * (changed + signature.dropout)


def register_rule(taken: int, allowed: int, remedy: str) -> Iterator[Violation]:
    if taken > allowed:
        message = f"accumulators, scores and softmax weights take {taken} of {allowed} registers"
        yield Violation("nv-registers", message, remedy)


def shared_rule(taken: int, available: int) -> Iterator[Violation]:
    if taken > available:
        message = f"queries and KV stages take {taken} of {available} bytes of shared memory"
        yield Violation("nv-shared-memory", message, "use fewer stages or a smaller tile_n")
