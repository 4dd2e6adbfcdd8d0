"""What the cost of CUDA kernels of convolution is counted in: `Rates` of cost.h, from the fits in the arch table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Fma,
    Launch,
    Memory,
    UnitCache,
    UnitClock,
    UnitFma,
    UnitMemory,
    UnitMma,
    UnitMmaInt8,
    Units,
    UnitWgmma,
)
from tilewright.backends.cuda.gemm import KERNELS as GEMM
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """What depends on the device: `conv` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    loop_rate: Fma  # products of the loops a second, where there are elements enough for all threads
    loop_step: Cycles  # a product, one after another on one thread
    band_macs: UnitWgmma  # a second, of one multiprocessor
    band_weight_macs: UnitWgmma
    one_cache: UnitCache  # bytes a second into one of them, all at once
    first_cycle: Cycles  # of first layers: as their host counts them
    first_fill: Launch
    band_fill: Launch
    band_tile: Cycles
    diagonal: Cycles  # to ask for the weights of one of merged groups
    pixel: tuple[Cycles, ...]  # a pixel of a traversal, of images of one, two and three dimensions
    band_pixel: tuple[Cycles, ...]
    band_row: Cycles  # a row of weights that does not stay
    few_taps: Cycles  # a band of strides is soon read, and the next not there: with two stages
    few_taps_of_three: Cycles  # and with three
    memory: Memory  # bytes a second
    through: Memory  # of them, where about as many are written as read, and the cache is full of others'
    fmas: Fma  # multiply-adds a second beside the loads and conversions they need
    tile_fmas: Fma  # of windows over tiles
    mma_bytes: UnitMemory  # a second into one multiprocessor, of tiles that matrix instructions read
    enough: Units  # threads that keep all multiprocessors busy
    transposed: Memory  # bytes a second of a copy that transposes pixels and channels, read and written
    add_start: Launch  # of a second launch
    sums: Memory  # bytes a second of partial sums that are written and added by a kernel of few threads
    short_row: Cycles  # a row of weights that ends before its 128 bytes do, where no copy fills it up


class GatherConstants(NamedTuple):
    """What depends on the device: `conv_gather` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    fill: Launch
    macs_1: UnitMmaInt8  # a second, of elements of one byte
    macs_2: UnitMma  # of two
    macs_4: UnitFma  # of four
    issued: UnitClock  # instructions of warps a second
    fetched: UnitCache  # bytes a second
    setup: Cycles  # of a block: what its lines and its first k say
    sync: Launch
    memory: Memory  # bytes a second, of all


class PointwiseConstants(NamedTuple):
    """Seconds of TMA: `conv_pointwise` of the fits in the arch table."""

    row: Cycles  # of 128 bytes
    short_row: Cycles  # one that ends before
    first_rows: Launch  # until they are there


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("conv", Constants, arch)


def rate_numbers(arch: Arch) -> Mapping[str, float]:
    """By the names of cost.h: those of GEMM's kernels among them, which pointwise convolutions are."""
    own = constants(arch.name)._asdict()
    by_dimensions = {name: own.pop(name) for name in ("pixel", "band_pixel")}
    own |= {f"{name}_{dims}": rate for name, rates in by_dimensions.items() for dims, rate in enumerate(rates, start=1)}
    named = {
        "conv": own,
        "conv_gather": fitted("conv_gather", GatherConstants, arch.name)._asdict(),
        "conv_pointwise": fitted("conv_pointwise", PointwiseConstants, arch.name)._asdict(),
    }
    mine = {f"{part}_{name}": float(rate) for part, rates in named.items() for name, rate in rates.items()}
    return {**GEMM.native.rates(arch), **mine}
