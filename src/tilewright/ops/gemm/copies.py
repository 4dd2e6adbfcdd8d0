"""Sizes of the copies in which a kernel serves a problem it refuses as it is: rows of whole accesses, a k long enough.

What edge code is missing comes on top (`grains` of each family).
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple

from tilewright.ops.gemm.schedule import ONE, Shape


class CopiedSizes(NamedTuple):
    """How they follow from a problem's: multiples of `steps`, where a k below `short_k` becomes `least_k` first."""

    steps: Shape = ONE
    short_k: int = 0
    least_k: int = 0

    def grown(self, m: int, n: int, k: int) -> Shape:
        sizes = m, n, self.least_k if k < self.short_k else k
        m, n, k = (-(-size // step) * step for size, step in zip(sizes, self.steps, strict=True))
        return m, n, k


def whole_rows(layout: str, widths: Shape) -> Shape:
    """Steps of m, n and k by which rows of A, B and C are whole accesses of so many elements."""
    steps = [1, 1, 1]
    contiguous = (2 if layout[0] == "r" else 0), (1 if layout[1] == "r" else 2), 1
    for axis, width in zip(contiguous, widths, strict=True):
        steps[axis] = lcm(steps[axis], width)
    m, n, k = steps
    return m, n, k
