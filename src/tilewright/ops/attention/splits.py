"""In how many parts the keys of a problem are walked: the stated rule, where nobody says.

A GPU that has too few blocks of rows to be busy walks parts of the keys beside each other, and puts them together in a
second stage.  With `blocks` tiles of 64 rows (those of a group of query heads together, as decode kernels take them)
and two places a compute unit:

    blocks >= 0.8 places            one part
    else                            the least number of parts, each of at least 256 keys, whose last wave of blocks is
                                    as full as 0.85 of the best number's

A CPU has one part: its kernels share the keys of a row among threads by themselves.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.arch import Arch
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import MOST_SPLITS

TILE_ROWS = 64
LEAST_KEYS = 256  # of a part
PLACES = 2  # blocks of a compute unit
BUSY, CLOSE = 0.8, 0.85


@lru_cache(maxsize=4096)
def parts(blocks: int, keys: int, compute_units: int) -> int:
    """The number of parts for so many blocks of rows."""
    places = PLACES * compute_units
    most = min(MOST_SPLITS, places, keys // LEAST_KEYS)
    if most < 2 or blocks >= BUSY * places:
        return 1

    def full(count: int) -> float:
        waves = blocks * count / places
        return waves / -(-blocks * count // places)

    best = max(map(full, range(1, most + 1)))
    return next(one for one in range(1, most + 1) if full(one) >= CLOSE * best)


def splits_of(problem: AttentionProblem, arch: Arch) -> int:
    """Parts a forward problem is walked in on an arch; 1 of a stage."""
    p = problem
    if p.family != "forward":
        return 1
    if p.splits:
        return p.splits
    if not arch.compute_units or not p.rows or not p.batch:
        return 1
    rows = p.rows * (p.heads_q // max(1, p.heads_kv))
    return parts(p.batch * p.heads_kv * -(-rows // TILE_ROWS), p.keys, arch.compute_units)
