"""How the host deals out parts of k where several blocks share a multiprocessor, for the estimates that count them."""

from __future__ import annotations

from typing import NamedTuple

MEET, SUMS, MOST_PARTS, LEAST_STEPS = 3e-6, 2.5e12, 16, 4  # cuda/deal.h


class Step(NamedTuple):
    """A step of k as the host counts it (`step` and `alone` of gpu/multistage_shape.h)."""

    seconds: float  # beside other blocks
    alone: float  # how much longer without
    results: int  # of a tile


def up(x: int, y: int) -> int:
    return -(-x // y)


def balanced(tiles: int, steps: int, units: int, room: int, one: Step) -> int:
    """Parts of k as `Dealing::balanced` in cuda/deal.h has them."""
    best, least = 1, float("inf")
    for parts in range(1, MOST_PARTS + 1):
        if parts > 1 and (tiles * parts > room or parts * LEAST_STEPS > steps):
            break
        high = up(tiles * parts, units)
        taken = up(steps, parts) * one.seconds * (high if high > 1 else one.alone)
        if parts > 1:
            taken += MEET + tiles * parts * one.results * 8 / SUMS
        if taken < least:
            best, least = parts, taken
    return up(steps, up(steps, best))
