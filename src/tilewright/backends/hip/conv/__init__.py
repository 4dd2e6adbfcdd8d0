"""All the HIP backend knows of convolution: its kernel families, and what they share.

ck_tile  CDNA: the matrix product of GEMM's CK Tile kernels with another way in.  Rows are pixels, k taps and channels,
         found by the lanes themselves; groups are a batch.  Channels side by side, or, `copied`, any memory and
         channels in copies that the kernel makes in its workspace
tiled    RDNA 3 and 4: the same by a product of our own, for CK Tile's headers have none there
loops    the fallback: any size, stride and element type, on every GPU
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from tilewright.arch import arch as arch_by_name
from tilewright.backends.gpu.conv import GpuConv
from tilewright.backends.hip.conv.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.conv.ck_tile import VERSIONS, ck_tile_rules
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule, example_schedule
from tilewright.backends.hip.conv.loops import FAMILY as LOOPS
from tilewright.backends.hip.conv.rates import arch_numbers, rates
from tilewright.backends.hip.conv.shared import EXHAUSTIVE
from tilewright.backends.hip.conv.tiled import FAMILY as TILED
from tilewright.backends.hip.gemm import KERNELS as GEMM
from tilewright.backends.hip.profiles import Needs
from tilewright.backends.native import FamiliesNative
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.numbers import FEATURES, FEATURES_EXPORT, FEATURES_HEADER, PROBLEM, problem_numbers
from tilewright.ops.conv.spec import OP, ConvSignature


class HipConv(GpuConv):
    backend = "hip"
    own = (CK_TILE, TILED, LOOPS)
    USUAL = "fp16"
    POOLS: ClassVar[Mapping[str, str]] = {
        EXHAUSTIVE: "`full` with more tiles, warp grids and splits: for searches with a budget"
    }
    product = GEMM

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::Conv", PROBLEM, problem_numbers, arch_numbers, rates,
            exports=f"{FEATURES_EXPORT} TW_SELECT_HIP_CONV_COPIES", headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip

    def shared_example(self, arch: str) -> KernelSpec | None:
        signature = ConvSignature("forward", 2, "fp16", "fp32", "fp16", "fp16")
        if next(ck_tile_rules(signature, arch_by_name(arch)), None) is not None:
            return None
        return KernelSpec(OP, signature, example_schedule(), arch)

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return CK_TILE.shared_context(spec)

    def header_needs(self, version: str) -> Needs | None:
        needs = GEMM.header_needs(version) if version in VERSIONS else None
        if needs is None:
            return None
        return Needs(needs.told_by, {name: needs.kinds[name] for name in CkTileConvSchedule.pipelines})


KERNELS = HipConv()
