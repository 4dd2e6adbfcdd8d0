"""How the host deals out parts of k where several blocks share a multiprocessor, for the estimates that count them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import fitted
from tilewright.arch.rates import Cycles, Memory, UnitCache, UnitFma, UnitMma, UnitMmaTf32

MOST_PARTS, LEAST_STEPS = 16, 4  # cuda/schedulers/tile_scheduler.h


class Constants(NamedTuple):
    """What the host counts with: `split_k` of the fits in the arch table; kernels are told (arch_facts.py)."""

    plain_macs: UnitFma  # a second, of one multiprocessor: of fp32
    mma_macs: UnitMma  # of two bytes and one
    wide_macs: UnitMmaTf32  # of tf32
    wide_bytes: UnitCache  # that it takes in, a second
    meet: Cycles  # all parts there
    sums: Memory  # bytes a second that change hands


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("split_k", Constants, arch)


class Step(NamedTuple):
    """A step of k as the host counts it (`step` and `alone` of gpu/multistage_shape.h)."""

    seconds: float  # beside other blocks
    alone: float  # how much longer without
    results: int  # of a tile


def up(x: int, y: int) -> int:
    return -(-x // y)


def balanced(tiles: int, steps: int, units: int, room: int, one: Step, c: Constants) -> int:
    """Parts of k as `Dealing::balanced` in cuda/schedulers/tile_scheduler.h has them."""
    best, least = 1, float("inf")
    for parts in range(1, MOST_PARTS + 1):
        if parts > 1 and (tiles * parts > room or parts * LEAST_STEPS > steps):
            break
        high = up(tiles * parts, units)
        taken = up(steps, parts) * one.seconds * (high if high > 1 else one.alone)
        if parts > 1:
            taken += c.meet + tiles * parts * one.results * 8 / c.sums
        if taken < least:
            best, least = parts, taken
    return up(steps, up(steps, best))
