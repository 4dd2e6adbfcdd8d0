"""What it costs the `shares` pipeline (`nvidia_schedules.py`) that its blocks divide the keys themselves."""

from __future__ import annotations

from math import ceil

from tilewright.ops.attention.problem import AttentionProblem

THREADS, LARGE_HEAD = 128, 128


def meeting_trips(problem: AttentionProblem, pieces: float) -> float:
    """Trips to memory and back to leave a piece, to count it, and for the last to add up so many of an item.

    As cuda/attention/shares/kernel.h goes about it.
    """
    p = problem
    quads = p.seqlen_q * (p.heads_q // max(1, p.heads_kv)) * p.head_dim_v / 4
    large = p.head_dim_v > LARGE_HEAD
    columns, at_once = (1, 8 if large else 16) if quads <= THREADS else (2 if large else 4, 4)
    return 2 + ceil(quads / (THREADS * columns)) * ceil(pieces / at_once)
