"""The heuristic for the number of KV splits on a GPU, where nobody gives one.

A GPU that has too few tiles of query rows to be busy computes splits of the keys in parallel, and a second kernel
combines them.  The heuristic takes the number of splits, each of at least 256 keys, of the least estimated time:

    places    resident blocks: two per compute unit for head dimensions up to 128, one for larger ones
    busy      the places that have a block: all, and in the last wave those that are left
    step      64 keys of one block: as long as it takes alone, or as memory takes for those of all busy places
    time      of each wave of blocks steps x step, and to begin and end one;
              with more than one split also the second kernel, and what it reads that the first wrote

A block is 64 rows (those of a group of query heads together, as decode kernels take them).

Sequences whose lengths only the device knows are not split where a kernel serves them that gives every block an equal
share of all keys (stream-K, `AttentionFamily.meeting_trips`): with splits, all blocks would wait for those of the
longest sequence.  Unless adding up the pieces of an item there would take more than a second kernel by over 5 % of the
time.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import Cycles, Launch, Memory, UnitMemory
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.attention import legality, pools
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import MOST_SPLITS
from tilewright.ops.attention.splits import LEAST_KEYS

TILE_ROWS, TILE_KEYS = 64, 64
LEAST_TILES = LEAST_KEYS // TILE_KEYS  # of a split
SMALL_HEAD = 128  # elements, of which two blocks fit a compute unit
SPENT = 0.05  # of the time, that stream-K may cost where all sequences turn out equally long
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
    result_bytes: int  # of all rows of one split
    places: int


@lru_cache(maxsize=4096)
def splits(walk: Walk, arch: str) -> int:
    """The number of splits of the least time."""
    tiles = -(-walk.keys // TILE_KEYS)
    most = min(MOST_SPLITS, walk.places, tiles // LEAST_TILES)
    if most < 2:
        return 1
    c = constants(arch)
    whole = _seconds(c, walk, tiles, 1)
    # Blocks that keep all places busy all the time, and a second kernel: no number of splits takes less.
    if whole <= EVEN * (walk.blocks / walk.places * _wave(c, walk, tiles, walk.places) + c.combine):
        return 1
    counts = sorted({-(-tiles // -(-tiles // count)) for count in range(2, most + 1)})  # no split without a tile
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


class KvSplits:
    """What the design space of attention on a GPU says of splits (`ops.attention.splits`)."""

    def may_split(self, arch: Arch) -> bool:
        return arch.compute_units > 0

    def key_elements(self, problem: AttentionProblem, arch: Arch) -> int:
        """Elements that are read of a key and its value."""
        return problem.head_dim + problem.head_dim_v

    def kv_splits(self, problem: AttentionProblem, arch: Arch) -> int:
        count = self.independent_splits(problem, arch)
        if count == 1 or not differ(problem):
            return count
        walk, c = self._walk(problem, arch), constants(arch.name)
        met = _met(problem, arch.name, walk.places / walk.blocks)
        if met is None:
            return count
        return 1 if met - c.combine <= SPENT * _seconds(c, walk, -(-walk.keys // TILE_KEYS), count) else count

    def independent_splits(self, problem: AttentionProblem, arch: Arch) -> int:
        if not self.may_split(arch) or not problem.seqlen_q or not problem.batch:
            return 1
        return splits(self._walk(problem, arch), arch.name)

    def _walk(self, p: AttentionProblem, arch: Arch) -> Walk:
        rows = p.seqlen_q * (p.heads_q // max(1, p.heads_kv))
        small = max(p.head_dim, p.head_dim_v) <= SMALL_HEAD
        return Walk(
            blocks=p.batch * p.heads_kv * -(-rows // TILE_ROWS),
            keys=p.seqlen_k,
            key_bytes=self.key_elements(p, arch) * DTYPES[p.dtype_kv].bytes,
            result_bytes=4 * p.batch * p.seqlen_q * p.heads_q * p.head_dim_v,
            places=arch.compute_units * (2 if small else 1),
        )


@lru_cache(maxsize=4096)
def _met(problem: AttentionProblem, arch: str, pieces: float) -> float | None:
    """What the first usual kernel says that takes the problem and schedules its keys itself; None without one."""
    for spec in pools.POOLS.candidates(problem.signature, arch):
        trips: float | None = legality.family_of(spec).meeting_trips(spec, problem, pieces)
        if trips is not None and not legality.supports(spec, problem):
            return constants(arch).trip * trips
    return None


def differ(problem: AttentionProblem) -> bool:
    """Whether sequences may have lengths of their own."""
    p = problem
    return p.batch > 1 and (p.seqlens_k or p.varlen or p.page_lookup == "indices")
