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

from math import gcd

from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda import attention_estimate_latent, attention_estimate_mma
from tilewright.backends.cuda.attention_walk import walk, whole
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.nvidia_fp8 import Fp8Schedule
from tilewright.ops.attention.nvidia_latent import LatentSchedule
from tilewright.ops.attention.nvidia_mma import MmaSchedule
from tilewright.ops.attention.nvidia_schedules import ROWS, CombineSchedule, WsSchedule
from tilewright.ops.attention.nvidia_shares import meeting
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.attention.splits import differ
from tilewright.ops.base import KernelSpec

START = 4e-6
ITEM = 1.5e-6  # to begin and to end an item
STREAMED = 0.87  # of that, where items are streamed
UNIT_MACS = 5.5e12  # products a second of one multiprocessor, at the margin: what a step takes anyhow is in STEP
HIDDEN_SCORE = 2.1e-11  # of an exponential beside another warpgroup's products, with what belongs to it
KEY = 5.6e-9  # of a warpgroup's row of scores, one after another
STEP = 3.1e-7  # of barriers and the like
TWO_STAGES = 1.06  # how much longer a step takes that has only one tile to come
SCORED = 2.0  # how much longer scores take that something is done to
UNIT_BYTES = 6e10  # a second that one multiprocessor fetches
MEMORY = 4.2e12
EXPOSED = 0.33  # of the time memory takes, beside products
BOX = 2e-8  # of each box that pages come by
LEAST_TILES = 4  # of a share: cuda/attention_ws_shape.h
UNEVEN = 1.4  # how much longer the longest sequences take, of those whose lengths the device tells
SHORT_STREAM = 4  # steps: cuda/attention_scores.h
CARRY = 0.6e-6  # rows of packed heads, which threads carry; where there are few, and of each element where all are
CARRIED, MOST_CARRIED = 1.5e-8, 2e-6
ROW, MORE_PARTS = 1.5e-6, 7e-7  # of a combined row; and of parts that a warp reads after the first
PARTS_AT_ONCE, WARPS_AT_ONCE = 8, 32  # of a warp; that combine on a multiprocessor: cuda/attention_combine.h
LOOP_MACS = 4e11
LOOP_KEY = 3e-8  # of one key after another on one warp


def seconds(spec: KernelSpec, problem: AttentionProblem) -> float:
    """Shares alone do not wait for the longest sequence of few rows."""
    p, group = problem, problem.heads_q // max(1, problem.heads_kv)
    waits = spec.schedule.pipeline != "shares" and p.family == "forward" and group * p.rows <= ROWS and differ(p)
    return _of_equal_sequences(spec, p) * (UNEVEN if waits else 1.0)


def _of_equal_sequences(spec: KernelSpec, problem: AttentionProblem) -> float:
    if isinstance(spec.schedule, WsSchedule):
        return _ws(spec, spec.schedule, problem)
    if isinstance(spec.schedule, Fp8Schedule):
        return attention_estimate_mma.fp8_seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, LatentSchedule):
        return attention_estimate_latent.seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, MmaSchedule):
        return attention_estimate_mma.seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, CombineSchedule):
        return _combine(spec, spec.schedule, problem)
    longest = problem.keys if problem.family in ("forward", "split") else 1
    return START + max(problem.flops / 2 / LOOP_MACS, longest * LOOP_KEY, problem.bytes / MEMORY * 4)


def _combine(spec: KernelSpec, h: CombineSchedule, p: AttentionProblem) -> float:
    rows = p.heads_q * p.batch * p.rows
    rounds = whole(rows, WARPS_AT_ONCE * (arch_by_name(spec.arch).compute_units or 1) // h.warps)
    read = 4.0 * p.splits * p.head_v * rows
    turns = whole(p.splits, PARTS_AT_ONCE * h.warps)
    return START + rounds * (ROW + MORE_PARTS * (turns - 1)) + read / MEMORY


def _ws(spec: KernelSpec, h: WsSchedule, p: AttentionProblem) -> float:
    places = (arch_by_name(spec.arch).compute_units or 1) * h.together
    group = p.heads_q // max(1, p.heads_kv) if h.packs else 1
    walked = walk(p, h, group)
    if h.warpgroups > 1 and (h.row_stages == 1 or walked.steps > SHORT_STREAM):
        walked = walk(p, h, group, ROWS)
    item = ITEM * (STREAMED if h.row_stages > 1 else 1.0)
    if h.packs:
        item += CARRY if h.warpgroups == 1 else min(MOST_CARRIED, CARRIED * p.head_qk)
    step = _step(spec.signature, h, min(walked.items, places)) + BOX * _boxes(spec.signature, h, p)
    all_items = walked.waves(places) * (walked.steps * step + item)
    if h.pipeline == "shares":
        tiles = walked.items * walked.steps
        blocks = min(places, max(1.0, tiles / LEAST_TILES))
        pieces = max(1.0, blocks / walked.items)
        all_items = tiles / blocks * step + max(1.0, walked.items / blocks) * item + meeting(p, pieces)
    exposed = 0.0 if h.packs and h.warpgroups == 1 else EXPOSED  # whose steps are as long as memory takes
    return START + max(all_items + exposed * p.bytes / MEMORY, p.bytes / MEMORY)


def _boxes(s: AttentionSignature, h: WsSchedule, p: AttentionProblem) -> int:
    """That a tile of keys and values comes by, of as many rows as divide pages and tiles."""
    if s.pages == "none":
        return 0
    return h.tile_n // gcd(h.tile_n, max(1, p.page_size)) * (whole(s.head_qk, 64) + whole(s.head_v, 64))


def _step(s: AttentionSignature, h: WsSchedule, busy: int) -> float:
    """Of one tile of rows and one of keys, while so many blocks are at work."""
    scored = SCORED if s.bias != "none" or s.masked or s.softcap or s.dropout else 1.0
    scores = h.tile_m * h.tile_n
    shared = h.together * (scores * (s.head_qk + s.head_v) / UNIT_MACS + scores * HIDDEN_SCORE * scored)
    alone = h.tile_n * KEY * scored + 64 * h.tile_n * s.head_qk / UNIT_MACS
    stage = h.tile_n * (s.head_qk + s.head_v) * DTYPES[s.dtype_kv].bytes
    fetch = stage * h.together / UNIT_BYTES
    if h.packs and h.warpgroups == 1:  # keys that nobody else reads come from memory
        fetch = max(fetch if busy > h.together else 0.0, stage * busy / MEMORY)
    return max((max(shared, alone) + STEP) * (TWO_STAGES if h.stages == 2 and h.warpgroups > 1 else 1.0), fetch)
