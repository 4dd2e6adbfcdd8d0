"""What the cost of convolutions on AMD GPUs is counted in: `Rates` of cost.h, from the fits in the arch table.

A convolution costs what its matrix product costs, a little more for finding pixels, and more where loads are narrow: a
load of one element takes as long as one of sixteen bytes.  Copies of operands come before and after.  Only the order
of the answers matters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch
from tilewright.arch.rates import AllCycles, Fma, Launch, Memory, UnitClock, UnitMmaCycle
from tilewright.backends.hip.fits import constants
from tilewright.backends.hip.gemm import KERNELS as GEMM
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`hip_conv` of the fits in the arch table."""

    start: Launch
    loop_rate: Fma  # products of the loops a second
    walking: float  # of a product whose rows are found pixel by pixel
    loads_a_second: AllCycles  # of lanes, all compute units together
    copied: Memory  # bytes a second, read and written


class TiledConstants(NamedTuple):
    """`hip_conv_tiled` of the fits in the arch table: kernels of our own."""

    clock: UnitClock
    memory: Memory  # bytes a second
    share: float  # of the peak that tiles of our own reach
    wmma_macs: UnitMmaCycle  # a clock, of one compute unit
    fma_macs: float


def rates(arch: Arch) -> Mapping[str, float]:
    """With those of the product that CK Tile's kernels compute."""
    own = constants("hip_conv", Constants, arch)._asdict()
    tiled = constants("hip_conv_tiled", TiledConstants, arch)
    own |= {
        "rdna_clock": tiled.clock, "rdna_memory": tiled.memory, "rdna_share": tiled.share,
        "wmma_macs": tiled.wmma_macs, "fma_macs": tiled.fma_macs,
    }  # fmt: skip
    return {**{f"conv_{name}": float(each) for name, each in own.items()}, **GEMM.native.rates(arch)}


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return GEMM.native.arch(arch)
