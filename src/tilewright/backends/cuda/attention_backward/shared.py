"""What families of attention's gradients on NVIDIA GPUs share: how the template is filled, and what wgmma takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.pipelines import COMPILE_MEMORY, Fields, flag
from tilewright.backends.families import Family
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

INPUTS = ("bf16", "fp16")
BLOCK_SHARED = 1024  # bytes of shared memory that a block takes itself
WGMMA_HEADS = (32, 64, 96, 128)  # whose dk and dv of 64 keys a warpgroup keeps in registers
MOST_WGMMA_HEAD = 256  # with columns shared out among warpgroups


class CudaAttentionBackwardFamily(Family):
    """A family of kernels on NVIDIA GPUs: all are filled into one template."""

    template = ("tilewright.backends.cuda.attention_backward", "attention_backward.cu.jinja")

    def device(self, spec: KernelSpec) -> str:
        """The macro of kernel.h that names its functions."""
        raise NotImplementedError

    def host(self, spec: KernelSpec) -> str:
        """The struct of host.h."""
        raise NotImplementedError

    def headers(self, spec: KernelSpec) -> str:
        """The folder of kernel.h and host.h."""
        return self.name

    def beside(self, spec: KernelSpec) -> tuple[str, ...]:
        """What the names of its functions beside the first end with."""
        return ()

    def config(self, spec: KernelSpec) -> Fields:
        """What the kernel reads of its schedule, as C++ writes it."""
        return {}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        folder = self.headers(spec)
        return {
            "family": self.name, "device_header": f"{folder}/kernel.h", "device": self.device(spec),
            "host_header": f"{folder}/host.h", "host": self.host(spec), "beside": self.beside(spec),
            "fields": self.config(spec), "limits": {name: int(value) for name, value in self.numbers(spec).items()},
        }  # fmt: skip

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def early(spec: KernelSpec) -> str:
    """Whether kernels of the arch may come in before the one before them is done: from sm_90 on."""
    return flag("wgmma" in arch_by_name(spec.arch).features)


def taken_by_wgmma(signature: AttentionBackwardSignature, arch: Arch) -> bool:
    """Whether the `ws` family has kernels of a signature, as far as its features go."""
    s = signature
    heads = max(s.head_dim, s.head_dim_v) <= MOST_WGMMA_HEAD
    served = not (s.dalibi or (s.dbias and s.softcap))
    return {"wgmma", "tma"} <= arch.features and s.dtype in INPUTS and served and heads


def scored(signature: AttentionBackwardSignature) -> bool:
    """Whether more is done to scores than a softmax."""
    s = signature
    return s.bias != "none" or s.masked or s.softcap or s.dropout
