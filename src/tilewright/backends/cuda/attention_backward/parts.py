"""Into how many splits the rows that attend to a tile of keys are divided among blocks of the `ws` family.

A block owns a tile of keys, and iterates over rows of all query heads of a group.  With few KV heads, or short
sequences, that is fewer blocks than multiprocessors; and with a causal mask, where every row attends to the first tile
of keys and hardly any to the last, a multiprocessor should have several.  Blocks that share a tile write partial sums
of dk and dv each, which are read and added up.  The cost weighs one against the other; cost.h counts alike.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.attention_backward.rates import rates
from tilewright.backends.cuda.attention_backward.ws import keys_of
from tilewright.dataclass import NamedTuple
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem

MOST_PARTS = 64
ROWS = {32: 96, 64: 96, 96: 80}  # of the usual tile, by the larger head; of larger ones 64
ITEM = 2.0  # of the time to begin and to end a tile of keys: what many short blocks take
GAIN = 0.02  # of the time that several parts must save
UNEVEN, FEW_WAVES = 0.3, 4  # of a block's time that the last ones of many take longer; of few alike they are a wave
EARLY = 0.25  # of a block, that others end before it
CACHED = 32 << 20  # bytes of rows whose tiles are mixed, the longest first (ws/host.h)
LAST_WAVES = 2  # blocks a multiprocessor that are mixed whatever the cache keeps: the last ones (ws/host.h)
# How much longer steps take for each time that rows and accumulators of blocks that run together fill what the cache
# keeps, beyond so many times and up to so many; fitted to causal groups on an H200 (docs/reports/notes/attention.md).
CROWDED, UNCROWDED, MOST_CROWDED = 0.115, 1.6, 5.0
FOLLOW = 1.4e-6  # seconds between one block's add to a tile of dq and the next one's, in turns
ADDING, A_PART = 3e-6, 7e-7  # what it takes longer to add up parts, however small, and each of them
SLOWLY = 1.5  # how much longer partial sums take to be written and read than bytes at best


class Work(NamedTuple):
    """What blocks have to do, with one block a tile of keys."""

    blocks: float
    longest: float  # seconds of the longest block's steps
    all: float  # of all
    item: float  # to begin and to end a block
    sums: float  # to write and to read the partial sums of one split
    even: bool  # all blocks have as much to do
    runs: float  # of blocks from the longest to the shortest, one behind the other
    followers: float = 0.0  # blocks of one head that add to the same rows in turns, all as long
    crowd: float = 0.0  # bytes that blocks which run together meet at different times, over what the cache keeps


def time_of(work: Work, parts: int, units: int) -> float:
    """Seconds of so many parts."""
    slower = 1 + CROWDED * max(0.0, min(MOST_CROWDED, work.crowd / parts) - UNCROWDED)
    blocks, longest = work.blocks * parts, work.longest * slower / parts + work.item
    average, waves = work.all * slower / blocks + work.item, max(1.0, blocks / units)
    if waves > 1.0:
        waves = ceil(waves) if work.even and waves <= FEW_WAVES else waves + UNEVEN
    taken = max(longest, average * waves)
    if blocks > units and not work.even:
        alike = average * blocks / units  # were it shared out evenly
        last_run = min(1.0, max(1 / work.runs, LAST_WAVES * units / blocks))
        taken = max(taken, alike * (1 - last_run) - EARLY * average + longest)
    if work.followers:  # those that begin together wait for each other once
        taken += FOLLOW * (work.followers * min(1.0, units / blocks) - 1)
    return taken + (ADDING + (work.sums + A_PART) * parts if parts > 1 else 0.0)


def work_of(problem: AttentionBackwardProblem, arch: Arch) -> Work:
    p, rate = problem, rates(arch)
    rows = p.total_q / max(1, p.batch) if p.varlen else p.seqlen_q
    keys = p.total_k / max(1, p.batch) if p.varlen else p.seqlen_k
    tile_m, tile_n = ROWS.get(max(p.head_dim, p.head_dim_v), 64), keys_of(p.signature)
    entries, largest = tile_m * tile_n, max(p.head_dim, p.head_dim_v)
    columns = 2 * p.head_dim + 2 * p.head_dim_v + (128 if p.head_dim > 64 and largest <= 128 else p.head_dim)
    step = entries * (columns / rate["unit_macs"] + rate["score"]) + rate["step"]
    tiles = max(1.0, -(-keys // tile_n))
    heads = p.batch * p.heads_kv
    group = p.heads_q / p.heads_kv
    met = -(-rows // tile_m)
    if p.window_left >= 0 and not p.sink_tokens:
        met = min(met, -(-(tile_n + p.window_left + max(0, p.window_right)) // tile_m) + 1)
    cut = rows * (tile_n + tile_m) / 2 * p.batch * p.heads_q if p.bounded else 0.0
    every = (p.pairs + cut) / entries if p.bounded or p.varlen else p.batch * p.heads_q * met * tiles
    sums = SLOWLY * 2 * 4 * keys * heads * (p.head_dim + p.head_dim_v) / rate["memory"]
    together = CACHED / max(1.0, rows * group * (6 * p.head_dim + 2 * p.head_dim_v))
    runs, even = max(1.0, heads / max(1.0, together // 1)), not (p.bounded or p.varlen)
    followers = tiles if p.deterministic and not p.bounded else 0.0
    running = min(heads, max(1, arch.compute_units) / tiles)  # heads of keys whose blocks run together
    crowd = running / together if p.bounded and group > 1 else 0.0
    return Work(
        tiles * heads, group * met * step, every * step, ITEM * rate["item"], sums, even, runs, followers, crowd
    )


def best_parts(problem: AttentionBackwardProblem, arch: Arch) -> int:
    """1 where a block should have its tile of keys for itself."""
    return _best(problem.stage("grad", "dq"), arch.name)


@lru_cache(maxsize=4096)
def _best(problem: AttentionBackwardProblem, arch: str) -> int:
    target = arch_by_name(arch)
    units = max(1, target.compute_units)
    work = work_of(problem, target)
    if not work.all:
        return 1
    most = max(1, min(MOST_PARTS, int(work.longest / work.item * 2)))
    group = problem.heads_q // problem.heads_kv  # parts of whole heads stay together
    times = {parts: time_of(work, parts, units) for parts in range(1, most + 1) if parts > group or group % parts == 0}
    best = min(times, key=lambda parts: times[parts])
    return best if times[best] < (1 - GAIN) * times[1] else 1
