"""In how many parts the keys of a problem are walked: the stated rule, where nobody says.

A GPU that has too few blocks of rows to be busy walks parts of the keys beside each other, and puts them together in a
second stage.  The rule takes the number of parts, each of at least 4 tiles of 64 keys, whose time is the least by this
account (the constants are those of an H200; others differ in both rates alike):

    places    two a compute unit for heads of up to 128 elements, one for larger
    busy      the places that have a block: at most all, at most blocks x parts
    step      64 keys of one block: as long as it takes alone, or as memory takes for those of all busy places
    time      waves of blocks x (steps x step + to begin and end one)
              and with more than one part: the second stage, and what it reads that the first wrote

A block is 64 rows (those of a group of query heads together, as decode kernels take them).  A CPU has one part: its
kernels share the keys of a row among threads by themselves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import MOST_SPLITS

TILE_ROWS, TILE_KEYS = 64, 64
LEAST_TILES = 4  # of a part
LEAST_KEYS = LEAST_TILES * TILE_KEYS
SMALL_HEAD = 128  # elements, of which two blocks fit a compute unit
LATENT_V = 512  # elements
MEMORY = 4.2e12  # bytes a second
ALONE = 4.5e10  # bytes of keys and values a second, by one block that nobody else slows down
BEGIN = 2e-6  # to begin and to end a block's work
COMBINE = 4e-6  # the second stage
EVEN = 1.01  # of numbers that differ less the least is taken


class Walk(NamedTuple):
    """What the rule looks at."""

    blocks: int  # of rows
    keys: int
    key_bytes: int  # of a key and its value
    result_bytes: int  # of all rows of one part
    places: int


@lru_cache(maxsize=4096)
def parts(walk: Walk) -> int:
    """The number of parts of the least time."""
    tiles = -(-walk.keys // TILE_KEYS)
    most = min(MOST_SPLITS, walk.places, tiles // LEAST_TILES)
    if most < 2:
        return 1
    counts = sorted({-(-tiles // -(-tiles // count)) for count in range(1, most + 1)})  # no part without a tile
    times = {count: _seconds(walk, tiles, count) for count in counts}
    least = min(times.values())
    return next(count for count in counts if times[count] <= EVEN * least)


def _seconds(walk: Walk, tiles: int, count: int) -> float:
    tile = TILE_KEYS * walk.key_bytes
    busy = min(walk.places, walk.blocks * count)
    step = float(((tile / ALONE) ** 3 + (busy * tile / MEMORY) ** 3) ** (1 / 3))  # the longer of both, or a little more
    waves = -(-walk.blocks * count // walk.places)
    second = COMBINE + 2 * count * walk.result_bytes / MEMORY if count > 1 else 0.0
    return waves * (-(-tiles // count) * step + BEGIN) + second


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
    small = max(p.head_qk, p.head_v) <= SMALL_HEAD
    return parts(
        Walk(
            blocks=p.batch * p.heads_kv * -(-rows // TILE_ROWS),
            keys=p.keys,
            key_bytes=_read_elements(p, arch) * DTYPES[p.dtype_kv].bytes,
            result_bytes=4 * p.batch * p.rows * p.heads_q * p.head_v,
            places=arch.compute_units * (2 if small else 1),
        )
    )


def _read_elements(p: AttentionProblem, arch: Arch) -> int:
    """Of a key and its value.  Values as wide as a latent lie in their keys: the latent pipeline reads them once."""
    two_bytes = DTYPES[p.dtype_q].bytes == DTYPES[p.dtype_kv].bytes == 2
    latent = two_bytes and LATENT_V <= p.head_v <= p.head_qk and {"wgmma", "tma"} <= arch.features
    return p.head_qk if latent else p.head_qk + p.head_v
