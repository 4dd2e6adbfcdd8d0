"""What the cost of convolutions on AMD GPUs is counted in: `Rates` of cost.h.  Only the order of the answers matters.

A convolution costs what its matrix product costs, a little more for finding pixels, and more where loads are narrow: a
load of one element takes as long as one of sixteen bytes.  Copies of operands come before and after.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch
from tilewright.backends.hip.gemm import KERNELS as GEMM

_RATES = {
    "start": 5.0e-6,  # seconds of a launch
    "loop_rate": 5.0e11,  # products of the loops a second
    "walking": 1.05,  # of a product whose rows are found pixel by pixel
    "loads_a_second": 2.4e12,  # of lanes, all compute units together
    "rdna_clock": 2.4e9,
    "rdna_memory": 8.0e11,  # bytes a second
    "rdna_share": 0.5,  # of the peak that tiles of our own reach
    "wmma_macs": 256,  # a clock, of one compute unit
    "fma_macs": 64,
    "copied": 1.5e12,  # bytes a second, read and written
}


def rates(arch: Arch) -> Mapping[str, float]:
    """With those of the product that CK Tile's kernels compute."""
    return {**{f"conv_{name}": float(each) for name, each in _RATES.items()}, **GEMM.native.rates(arch)}


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return GEMM.native.arch(arch)
