"""All the CUDA backend knows of convolution: its kernel families, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.depthwise import FAMILY as DEPTHWISE
from tilewright.backends.cuda.conv.depthwise_mma import FAMILY as DEPTHWISE_MMA
from tilewright.backends.cuda.conv.depthwise_tile import FAMILY as DEPTHWISE_TILE
from tilewright.backends.cuda.conv.gather import FAMILY as GATHER
from tilewright.backends.cuda.conv.halo import FAMILY as HALO
from tilewright.backends.cuda.conv.halo_wgrad import FAMILY as HALO_WGRAD
from tilewright.backends.cuda.conv.loops import FAMILY as LOOPS
from tilewright.backends.cuda.conv.pointwise_multistage import FAMILY as POINTWISE_MULTISTAGE
from tilewright.backends.cuda.conv.pointwise_skinny import FAMILY as POINTWISE_SKINNY
from tilewright.backends.cuda.conv.pointwise_tma_ws import FAMILY as POINTWISE_TMA_WS
from tilewright.backends.cuda.conv.rates import rate_numbers
from tilewright.backends.cuda.conv.small_channel_wgrad import FAMILY as SMALL_CHANNEL_WGRAD
from tilewright.backends.cuda.conv.tma_ws import FAMILY as TMA_WS
from tilewright.backends.cuda.conv.width_folded import FAMILY as WIDTH_FOLDED
from tilewright.backends.cuda.gemm import KERNELS as GEMM
from tilewright.backends.gpu.conv import GpuConv
from tilewright.backends.native import FamiliesNative
from tilewright.ops.conv.numbers import FEATURES, FEATURES_EXPORT, FEATURES_HEADER, PROBLEM, problem_numbers


class CudaConv(GpuConv):
    backend = "cuda"
    own = (
        TMA_WS, WIDTH_FOLDED, HALO, HALO_WGRAD, SMALL_CHANNEL_WGRAD, DEPTHWISE_TILE, DEPTHWISE_MMA, DEPTHWISE, GATHER,
        LOOPS, POINTWISE_TMA_WS, POINTWISE_MULTISTAGE, POINTWISE_SKINNY,
    )  # fmt: skip
    USUAL = "bf16"
    product = GEMM

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::Conv", PROBLEM, problem_numbers, _arch_numbers, rate_numbers,
            exports=FEATURES_EXPORT, headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {**GEMM.native.arch(arch), "wgmma": int("wgmma" in arch.features)}


KERNELS = CudaConv()
