"""How long a convolution of gathered operands takes, about: the slowest of multiplying, asking for pieces, and memory.

All of it is of one multiprocessor, for the busiest of which everybody waits.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from tilewright.arch import arch as arch_by_name
from tilewright.arch import fitted
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Launch,
    Memory,
    UnitCache,
    UnitClock,
    UnitFma,
    UnitMma,
    UnitMmaInt8,
)
from tilewright.backends.cuda.conv.gather import parts_of_k, tiles
from tilewright.backends.cuda.conv.gather_schedules import GatherSchedule, Side, sides, together
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem, Sizes

PIECE, ELEMENT = 26.0, 14.0  # instructions that a piece takes, and an element that comes through registers
TURNED = 40.0  # and four floats that do
SECTOR = 32  # bytes that an element takes which has no neighbour beside it
BESIDE = 0.62  # of what is hidden behind the longest
ALONE = 0.11  # how much longer steps take where a block has its multiprocessor to itself, less beside others
LEAVES = 70  # instructions of a result that leaves by itself; several together take as many
EVEN = 1.2  # where it is even with kernels of the copy engine and wgmma, these are the faster ones


class Constants(NamedTuple):
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
    meet: Launch
    memory: Memory  # bytes a second, of all

    def macs(self, size: int) -> float:
        return self.macs_1 if size == 1 else self.macs_2 if size == 2 else self.macs_4


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("conv_gather", Constants, arch)


def seconds(spec: KernelSpec, schedule: GatherSchedule, p: ConvProblem) -> float:
    c = constants(spec.arch)
    (m, n, k), size = schedule.tile, DTYPES[p.dtype].bytes
    _, _, deep = p.gemm
    if p.variant == "backward_data":  # classes of pixels share the taps
        deep = -(-deep // prod(min(one, step) for one, step in zip(p.size, p.stride, strict=True)))
    steps, whole = max(1, -(-deep // k)), tiles(schedule, p)
    parts = parts_of_k(spec.signature, schedule, whole, steps, c.units)
    both = sides(spec.signature, schedule)
    multiply = m * n * k / c.macs(size)
    asked = sum(one.lines * one.deep / _elements(one) * _instructions(one) for one in both) / 32 / c.issued
    fetched = sum(_bytes(one, strides) for one, strides in zip(both, _read(p), strict=True)) / c.fetched
    longest = max(multiply, asked, fetched)
    step = longest + BESIDE * (multiply + asked + fetched - longest)
    busiest = -(-whole * parts // c.units)
    leave = m * n * LEAVES / (4 if _wide(p) else 1) / 32 / c.issued
    rounds = busiest * (1.0 + ALONE / min(busiest, together(spec.signature, schedule)))
    took = -(-steps // parts) * step * rounds + (leave + c.setup) * busiest
    shared = c.meet + whole * parts * m * n * 8 / c.memory if parts > 1 else 0.0
    found = c.start + c.fill + max(took, p.bytes / c.memory) + shared
    return found * (EVEN if size == 2 and "wgmma" in arch_by_name(spec.arch).features else 1.0)


def _elements(side: Side) -> int:
    """Of a piece."""
    return 1 if side.single else side.vector


def _instructions(side: Side) -> float:
    return ELEMENT if side.single else TURNED if side.held else PIECE


def _read(p: ConvProblem) -> tuple[tuple[int, int], tuple[int, int]]:
    """Strides of A and B along k and along lines."""

    def pixel(strides: Sizes) -> int:
        return strides[-2] * (p.stride[-1] if p.variant != "backward_data" else 1)

    if p.variant == "forward":
        return (p.x_strides[-1], pixel(p.x_strides)), (p.w_strides[-1], p.w_strides[0])
    if p.variant == "backward_data":
        return (p.y_strides[-1], p.y_strides[-2]), (p.w_strides[0], p.w_strides[-1])
    return (p.y_strides[-2], p.y_strides[-1]), (pixel(p.x_strides), p.x_strides[-1])


def _bytes(side: Side, strides: tuple[int, int]) -> float:
    """Of a stage: elements that neighbouring threads do not read side by side take a sector each."""
    apart = strides[0 if side.along_k else 1]
    each = side.size if side.vector > 1 else min(SECTOR, max(1, abs(apart)) * side.size)
    return float(side.lines * side.deep * each)


def _wide(p: ConvProblem) -> bool:
    """Whether results leave in words."""
    strides, columns = {
        "forward": (p.y_strides, p.group_filters),
        "backward_data": (p.x_strides, p.group_channels),
        "backward_weight": (p.w_strides, p.group_channels),
    }[p.variant]
    width = 4 if DTYPES[p.dtype_out].bytes == 4 else 8
    return p.aligned and strides[-1] == 1 and not any(one % width for one in (*strides[:-1], columns))
