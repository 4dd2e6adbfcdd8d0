"""What the cost of CUDA kernels of GEMM is counted in: `Rates` of cost.h.

The constants were fitted to random problems on an H200 (bf16, cold caches; tf32 in layouts that wgmma does not read),
and judged on others (benchmarks/fit_cuda.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import (
    Cache,
    Cycles,
    Fma,
    Launch,
    Memory,
    UnitCache,
    UnitClock,
    UnitMma,
    UnitMmaTf32,
    UnitWgmma,
)
from tilewright.backends.cuda import split_k
from tilewright.dataclass import NamedTuple


class PlainConstants(NamedTuple):
    """`plain` of `gemm` of the fits in the arch table."""

    issue: UnitClock  # instructions a second that the warps of a multiprocessor issue
    fill: Launch  # until the first stage is there
    store_results: Cycles  # of a result
    hand: Cycles  # stream-K: a flag seen...
    handed: UnitCache  # ...and bytes a second of partial sums that a block reads from another
    sync: Cycles  # split-K: all parts there...
    sums: Memory  # ...and bytes a second of partial sums between blocks


class WideConstants(NamedTuple):
    """`wide` of `gemm` of the fits in the arch table."""

    macs: UnitMmaTf32  # a second, of one multiprocessor
    issue: UnitClock  # bytes a second of fragments and copies through its shared memory
    cache: UnitCache  # bytes a second that one multiprocessor takes in where all do
    turn: Cycles  # a step of a block alone
    fill: Launch  # until the first stage is there
    store_results: UnitCache  # bytes a second of results of one multiprocessor
    sync: Cycles  # split-K: all parts there...
    sums: Memory  # ...and bytes a second of partial sums between blocks


class Constants(NamedTuple):
    """What seconds are made of: `gemm` of the fits in the arch table."""

    plain: PlainConstants
    wide: WideConstants
    start: Launch  # an empty kernel, seen from outside
    memory: Memory  # bytes a second
    cache: Cache  # bytes a second from the second-level cache, all multiprocessors together
    astray: float  # how much more the cache moves of rows that start between its lines
    macs: UnitWgmma  # a second, of one multiprocessor at two bytes an element; one byte doubles it
    one_cache: UnitCache  # bytes a second that one multiprocessor takes in
    fill: Launch  # until the first stage is there
    store_results: Cycles  # of a 128 x 256 tile: what is left to do after its last multiply
    store_least: Cycles  # of any tile
    staging: float  # how much longer results take through a staging buffer than with TMA
    wide_staging: float  # the same of results of four bytes, which TMA does not take
    singles: float  # and how much longer straight from the registers, where rows of E begin between its pairs
    hidden: float  # of the way out that ping-pong still feels between two tiles
    hidden_least: float  # and of what any tile takes
    over: float  # of lines fetched beyond a tile, the part that comes from memory once more
    soft: float  # how sharply the slowest of several decides: the power in which they add
    per_step: Cycles
    per_neighbour: Cycles  # a step waits for the slowest block of its cluster
    swap_ab: float  # how much longer a k-block takes with swap-AB
    rate_floor: float  # of narrow multiplies...
    rate_columns: float  # ...by the columns of one...
    rate_rows: float  # ...and of tiles of 64 rows
    hand_over: Cycles  # stream-K: partial sums written, flag seen, partial sums read, of a 128 x 256 tile
    exchange: Cycles  # cluster_k: all blocks there...
    neighbour: UnitClock  # ...and bytes a second of partial sums that a block reads
    sync: Cycles  # split-K: partial sums written, all splits arrived, partial sums read
    sums: Memory  # bytes a second of partial sums between blocks
    copy_start: Launch  # of operands that are copied first: a launch more...
    copy: Memory  # ...and bytes a second
    skinny_memory: Memory  # skinny: bytes a second
    skinny_latency: float  # seconds a load is under way
    skinny_registers: float  # registers beside the loads
    skinny_tail: float  # the part of a last round that is lost
    skinny_warp: Cycles  # what a warp's start costs...
    skinny_turn: Cycles  # ...an iteration of its loop...
    skinny_gather: Cycles  # ...and an iteration with eight of the few rows of a column-major operand
    tiled_fill: Launch  # skinny, both sides tiled: until its loads are there
    tiled_warp: Cycles  # what a warp of a block costs...
    tiled_round: Cycles  # ...a further round of blocks...
    tiled_turn: Cycles  # ...a further iteration of the loop...
    tiled_gather: Cycles  # ...and an iteration with eight rows of a column-major operand
    tiled_cache: Cache  # bytes a second of operands that blocks read...
    tiled_memory: Memory  # ...and of what the problem moves, all of it at the same time
    mma_macs: UnitMma  # multistage, of one multiprocessor: multiplications of mma.sync at two bytes a second...
    shared: UnitClock  # ...bytes through shared memory...
    copies: UnitClock  # ...and copies
    alone: float  # what a block alone reaches of it
    stage_turn: Cycles  # what a step costs in any case
    stages_fill: Launch  # until the first stage is there
    loops_macs: Fma  # a second, of the whole GPU
    loops_turn: Cycles  # an iteration of its loop, however small


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("gemm", Constants, arch)


def rate_numbers(arch: Arch) -> Mapping[str, float]:
    """`Rates` of cost.h: the parts of the constants under names that begin with the part's."""
    return named(constants(arch.name), arch.name)


def named(values: Constants, arch: str) -> Mapping[str, float]:
    """The same of constants that are tried out."""
    whole = values._asdict()
    parts = {name: whole.pop(name)._asdict() for name in ("plain", "wide")}
    parts["parts"] = split_k.constants(arch)._asdict()
    return whole | {f"{part}_{name}": value for part, each in parts.items() for name, value in each.items()}
