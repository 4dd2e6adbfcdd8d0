"""Sizes of the copies in which a kernel serves a problem it refuses as it is: rows of whole accesses.

What edge code is missing comes on top (`grains` of each family).
"""

from __future__ import annotations

from math import lcm

from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import Shape


def whole_rows(problem: GemmProblem, k: int, grain: Shape, widths: Shape) -> Shape:
    """m, n and k, at least the problem's own: multiples of `grain`, rows of A, B and C of whole accesses."""
    p, each = problem, list(grain)
    contiguous = (2 if p.layout[0] == "r" else 0), (1 if p.layout[1] == "r" else 2), 1
    for axis, width in zip(contiguous, widths, strict=True):
        each[axis] = lcm(each[axis], width)
    m, n, k = (-(-size // step) * step for size, step in zip((p.m, p.n, k), each, strict=True))
    return m, n, k
