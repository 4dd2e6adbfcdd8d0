"""In how many parts the keys of a problem are walked: the stated rule, where nobody says.

A GPU that has too few blocks of rows to be busy walks parts of the keys beside each other, and puts them together in a
second stage.  The rule takes the number of parts, each of at least 4 tiles of 64 keys, whose time is the least by this
account:

    places    two a compute unit for heads of up to 128 elements, one for larger
    busy      the places that have a block: all, and of the last wave those that are left
    step      64 keys of one block: as long as it takes alone, or as memory takes for those of all busy places
    time      of each wave of blocks steps x step, and to begin and end one
              and with more than one part: the second stage, and what it reads that the first wrote

A block is 64 rows (those of a group of query heads together, as decode kernels take them).  A CPU has one part: its
kernels share the keys of a row among threads by themselves.

Sequences whose lengths only the device knows are not divided here, where a kernel takes them that deals all keys there
are in equal shares (`AttentionFamily.meeting_trips`): everybody would wait for parts of the longest one.  Unless what
adds up the pieces of an item there would take more than a second stage by over 5 % of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import Cycles, Launch, Memory, UnitMemory
from tilewright.dtypes import DTYPES
from tilewright.ops.attention import legality, pools
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import MOST_SPLITS

TILE_ROWS, TILE_KEYS = 64, 64
LEAST_TILES = 4  # of a part
LEAST_KEYS = LEAST_TILES * TILE_KEYS
SMALL_HEAD = 128  # elements, of which two blocks fit a compute unit
LATENT_V = 512  # elements
SPENT = 0.05  # of the time, that equal shares may cost where all turn out equally long
EVEN = 1.01  # of numbers that differ less the least is taken


class Constants(NamedTuple):
    """What depends on the device: `attention_splits` of the fits in the arch table."""

    memory: Memory  # bytes a second
    alone: UnitMemory  # bytes of keys and values a second by one block that nobody else slows down
    step: Cycles  # of each step
    begin: Cycles  # to begin and to end a block's work
    combine: Launch  # the second stage
    trip: Cycles  # to memory and back, while everybody else reads


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("attention_splits", Constants, arch)


class Walk(NamedTuple):
    """What the rule looks at."""

    blocks: int  # of rows
    keys: int
    key_bytes: int  # of a key and its value
    result_bytes: int  # of all rows of one part
    places: int


@lru_cache(maxsize=4096)
def parts(walk: Walk, arch: str) -> int:
    """The number of parts of the least time."""
    tiles = -(-walk.keys // TILE_KEYS)
    most = min(MOST_SPLITS, walk.places, tiles // LEAST_TILES)
    if most < 2:
        return 1
    c = constants(arch)
    whole = _seconds(c, walk, tiles, 1)
    # Blocks that keep all places busy all the time, and a second stage: no number of parts takes less.
    if whole <= EVEN * (walk.blocks / walk.places * _wave(c, walk, tiles, walk.places) + c.combine):
        return 1
    counts = sorted({-(-tiles // -(-tiles // count)) for count in range(2, most + 1)})  # no part without a tile
    times = {1: whole} | {count: _seconds(c, walk, tiles, count) for count in counts}
    least = min(times.values())
    return next(count for count, seconds in times.items() if seconds <= EVEN * least)


def _wave(c: Constants, walk: Walk, steps: int, busy: int) -> float:
    """Blocks beside each other, of so many steps each."""
    tile = TILE_KEYS * walk.key_bytes
    alone, shared = c.step + tile / c.alone, busy * tile / c.memory
    return steps * float((alone**3 + shared**3) ** (1 / 3)) + c.begin  # the longer of both, or a little more


def _seconds(c: Constants, walk: Walk, tiles: int, count: int) -> float:
    steps = -(-tiles // count)
    waves, left = divmod(walk.blocks * count, walk.places)
    seconds = waves * _wave(c, walk, steps, walk.places) if waves else 0.0
    if left:
        seconds += _wave(c, walk, steps, left)
    return seconds + c.combine + 2 * count * walk.result_bytes / c.memory if count > 1 else seconds


def splits_of(problem: AttentionProblem, arch: Arch) -> int:
    """Parts a forward problem is walked in on an arch; 1 of a stage."""
    if problem.family != "forward":
        return 1
    if problem.num_splits:
        return problem.num_splits
    count = walked_parts(problem, arch)
    if count == 1 or not differ(problem):
        return count
    walk, c = _walk(problem, arch), constants(arch.name)
    met = _met(problem, arch.name, walk.places / walk.blocks)
    if met is None:
        return count
    return 1 if met - c.combine <= SPENT * _seconds(c, walk, -(-walk.keys // TILE_KEYS), count) else count


@lru_cache(maxsize=4096)
def _met(problem: AttentionProblem, arch: str, pieces: float) -> float | None:
    """What the first usual kernel says that takes the problem and deals its keys itself; None where there is none."""
    for spec in pools.POOLS.candidates(problem.signature, arch):
        trips: float | None = legality.family_of(spec).meeting_trips(spec, problem, pieces)
        if trips is not None and not legality.supports(spec, problem):
            return constants(arch).trip * trips
    return None


def differ(problem: AttentionProblem) -> bool:
    """Whether sequences may have lengths of their own."""
    p = problem
    return p.batch > 1 and (p.seqlens_k or p.varlen or p.page_lookup == "indices")


def walked_parts(problem: AttentionProblem, arch: Arch) -> int:
    """Of a problem whose parts are kernels' and the second stage's affair."""
    p = problem
    if not arch.compute_units or not p.seqlen_q or not p.batch:
        return 1
    return parts(_walk(p, arch), arch.name)


def _walk(p: AttentionProblem, arch: Arch) -> Walk:
    rows = p.seqlen_q * (p.heads_q // max(1, p.heads_kv))
    small = max(p.head_dim, p.head_dim_v) <= SMALL_HEAD
    return Walk(
        blocks=p.batch * p.heads_kv * -(-rows // TILE_ROWS),
        keys=p.seqlen_k,
        key_bytes=_read_elements(p, arch) * DTYPES[p.dtype_kv].bytes,
        result_bytes=4 * p.batch * p.seqlen_q * p.heads_q * p.head_dim_v,
        places=arch.compute_units * (2 if small else 1),
    )


def _read_elements(p: AttentionProblem, arch: Arch) -> int:
    """Of a key and its value.  Values as wide as a latent lie in their keys: the latent pipeline reads them once."""
    two_bytes = DTYPES[p.dtype_q].bytes == DTYPES[p.dtype_kv].bytes == 2
    latent = two_bytes and LATENT_V <= p.head_dim_v <= p.head_dim and {"wgmma", "tma"} <= arch.features
    return p.head_dim if latent else p.head_dim + p.head_dim_v
