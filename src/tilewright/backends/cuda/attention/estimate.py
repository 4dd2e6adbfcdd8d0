"""How long attention takes on an NVIDIA GPU, about: enough to order kernels that nobody measured.

ws, decode   blocks take items of rows; a step of an item is a tile of keys.  A step takes what its products take and,
             of its exponentials, what the turns of the warpgroups do not hide; or as long as one warpgroup needs for
             its scores and their exponentials one after another.  No step is faster than the bytes it fetches, none of
             the launch faster than memory, and the items fill whole waves of blocks.  The constants are a fit to 90
             times of an H200 (within 5 %; the fastest of two or three kernels is found, or lost by 2 %)
shares       the same, of tiles that are dealt evenly; then one block reads the pieces of an item
combine      rounds of rows, and the parts that one warp does not read at once
fp8, mma     `attention_estimate_mma.py`
latent       `attention_estimate_latent.py`
loops        products of plain threads
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from tilewright.arch import fitted
from tilewright.arch.rates import ComputeUnits, Cycles, Fma, Launch, Memory, UnitCache, UnitWgmma
from tilewright.backends.cuda.attention import (
    estimate_latent as attention_estimate_latent,
)
from tilewright.backends.cuda.attention import (
    estimate_mma as attention_estimate_mma,
)
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.latent import LatentSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.backends.cuda.attention.schedules import ROWS, CombineSchedule, WsSchedule
from tilewright.backends.cuda.attention.shares import meeting_trips
from tilewright.backends.cuda.attention.traversal import walk, whole
from tilewright.dtypes import DTYPES
from tilewright.ops.attention import splits
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

STREAMED = 0.87  # of what an item takes, where items are streamed
TWO_STAGES = 1.06  # how much longer a step takes that has only one tile to come
SCORED = 2.0  # how much longer scores take that something is done to
EXPOSED = 0.33  # of the time memory takes, beside products
LEAST_TILES = 4  # of a share: cuda/attention/ws/shape.h
UNEVEN = 1.4  # how much longer the longest sequences take, of those whose lengths the device tells
SHORT_STREAM = 4  # steps: cuda/attention/scores.h
PARTS_AT_ONCE, WARPS_AT_ONCE = 8, 32  # of a warp; that combine on a multiprocessor: cuda/attention/combine/kernel.h


class Constants(NamedTuple):
    """What depends on the device: `attention` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    unit_macs: UnitWgmma  # products a second of one multiprocessor, at the margin: the rest of a step is in `step`
    hidden_score: Cycles  # of an exponential beside another warpgroup's products, with what belongs to it
    key: Cycles  # of a warpgroup's row of scores, one after another
    step: Cycles  # of barriers and the like
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second
    box: Cycles  # of each box that pages come by
    carry: Cycles  # rows of packed heads, which threads carry, where there are few...
    carried: Cycles  # ...and of each element where all are...
    most_carried: Cycles  # ...at most
    row: Cycles  # of a combined row
    more_parts: Cycles  # and of parts that a warp reads after the first
    loop_macs: Fma  # products of the loops a second
    loop_key: Cycles  # of one key after another on one warp


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("attention", Constants, arch)


def seconds(spec: KernelSpec, problem: AttentionProblem) -> float:
    """Shares alone do not wait for the longest sequence of few rows."""
    p, group = problem, problem.heads_q // max(1, problem.heads_kv)
    waits = (
        spec.schedule.pipeline != "shares" and p.family == "forward" and group * p.seqlen_q <= ROWS and splits.differ(p)
    )
    return _of_equal_sequences(spec, p) * (UNEVEN if waits else 1.0)


def _of_equal_sequences(spec: KernelSpec, problem: AttentionProblem) -> float:
    c = constants(spec.arch)
    if isinstance(spec.schedule, WsSchedule):
        return _ws(spec, spec.schedule, problem)
    if isinstance(spec.schedule, Fp8Schedule):
        return attention_estimate_mma.fp8_seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, LatentSchedule):
        return attention_estimate_latent.seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, MmaSchedule):
        return attention_estimate_mma.seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, CombineSchedule):
        return _combine(c, spec.schedule, problem)
    longest = problem.seqlen_k if problem.family in ("forward", "split") else 1
    return c.start + max(problem.flops / 2 / c.loop_macs, longest * c.loop_key, problem.bytes / c.memory * 4)


def _combine(c: Constants, h: CombineSchedule, p: AttentionProblem) -> float:
    rows = p.heads_q * p.batch * p.seqlen_q
    rounds = whole(rows, WARPS_AT_ONCE * c.units // h.warps)
    read = 4.0 * p.num_splits * p.head_dim_v * rows
    turns = whole(p.num_splits, PARTS_AT_ONCE * h.warps)
    return c.start + rounds * (c.row + c.more_parts * (turns - 1)) + read / c.memory


def _ws(spec: KernelSpec, h: WsSchedule, p: AttentionProblem) -> float:
    c, s = constants(spec.arch), spec.signature
    places = c.units * h.together
    group = p.heads_q // max(1, p.heads_kv) if h.packs else 1
    walked = walk(p, h, group)
    if h.warpgroups > 1 and (h.row_stages == 1 or walked.steps > SHORT_STREAM):
        walked = walk(p, h, group, ROWS)
    item = c.item * (STREAMED if h.row_stages > 1 else 1.0)
    if h.packs:
        item += c.carry if h.warpgroups == 1 else min(c.most_carried, c.carried * p.head_dim)
    step = _step(c, s, h, min(walked.items, places)) + c.box * _boxes(s, h, p)
    all_items = walked.waves(places) * (walked.steps * step + item)
    if h.pipeline == "shares":
        tiles = walked.items * walked.steps
        blocks = min(places, max(1.0, tiles / LEAST_TILES))
        pieces = max(1.0, blocks / walked.items)
        all_items = (
            tiles / blocks * step
            + max(1.0, walked.items / blocks) * item
            + splits.constants(spec.arch).trip * meeting_trips(p, pieces)
        )
    exposed = 0.0 if h.packs and h.warpgroups == 1 else EXPOSED  # whose steps are as long as memory takes
    return c.start + max(all_items + exposed * p.bytes / c.memory, p.bytes / c.memory)


def _boxes(s: AttentionSignature, h: WsSchedule, p: AttentionProblem) -> int:
    """That a tile of keys and values comes by, of as many rows as divide pages and tiles."""
    if s.pages == "none":
        return 0
    return h.tile_n // gcd(h.tile_n, max(1, p.page_size)) * (whole(s.head_dim, 64) + whole(s.head_dim_v, 64))


def _step(c: Constants, s: AttentionSignature, h: WsSchedule, busy: int) -> float:
    """Of one tile of rows and one of keys, while so many blocks are at work."""
    scored = SCORED if s.bias != "none" or s.masked or s.softcap or s.dropout else 1.0
    scores = h.tile_m * h.tile_n
    shared = h.together * (scores * (s.head_dim + s.head_dim_v) / c.unit_macs + scores * c.hidden_score * scored)
    alone = h.tile_n * c.key * scored + 64 * h.tile_n * s.head_dim / c.unit_macs
    stage = h.tile_n * (s.head_dim + s.head_dim_v) * DTYPES[s.dtype_kv].bytes
    fetch = stage * h.together / c.unit_bytes
    if h.packs and h.warpgroups == 1:  # keys that nobody else reads come from memory
        fetch = max(fetch if busy > h.together else 0.0, stage * busy / c.memory)
    return max((max(shared, alone) + c.step) * (TWO_STAGES if h.stages == 2 and h.warpgroups > 1 else 1.0), fetch)
