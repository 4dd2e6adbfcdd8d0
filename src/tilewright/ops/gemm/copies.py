"""Sizes of the copies in which a kernel serves a problem it refuses as it is: rows of whole accesses, a k long enough.

What edge code is missing comes on top (`pad_grain` of each family).
"""

from __future__ import annotations

from math import lcm

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm import amd_shape as shape
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import GemmSchedule, Shape

LINE_BYTES = 16  # rows of copies on an NVIDIA GPU are multiples of this: what the copy engine asks for


def copied_sizes(family: str, schedule: GemmSchedule, problem: GemmProblem) -> Shape:
    """m, n and k of the copies, at least the problem's own."""
    p = problem
    if family == "cpu":  # host kernels read any stride, and any k
        return p.m, p.n, p.k
    grain, k = [1, 1, 1], p.k
    if family == "nvidia":
        widths = [LINE_BYTES // DTYPES[one].bytes for one in (p.dtype_a, p.dtype_b, p.dtype_c)]
        k = max(1, k)
    else:
        signature, step = p.signature, schedule.tile[2] * schedule.split_k
        widths = [one(signature, schedule) for one in (shape.width_a, shape.width_b, shape.width_c)]
        if schedule.split_k > 1:
            grain[2] = step
            grain[0] = schedule.tile[0] if p.dtype_c == "bf16" else 1
        if shape.loops(schedule, k) < shape.least_loops(schedule):
            k = step * shape.least_loops(schedule)
    contiguous = (2 if p.layout[0] == "r" else 0), (1 if p.layout[1] == "r" else 2), 1
    for axis, width in zip(contiguous, widths, strict=True):
        grain[axis] = lcm(grain[axis], width)
    m, n, k = (-(-size // each) * each for size, each in zip((p.m, p.n, k), grain, strict=True))
    return m, n, k
