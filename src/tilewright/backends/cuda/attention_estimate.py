"""How long attention takes on an NVIDIA GPU, about: enough to order kernels that nobody measured.

ws, decode   blocks take items of rows; a step of an item is a tile of keys.  A step's products and exponentials overlap
             where several warpgroups take turns, else they add up.  No block is faster than the bytes it fetches, none
             of the launch faster than memory, and the items fill whole waves of blocks
fp8, mma     `attention_estimate_mma.py`
loops        products of plain threads
"""

from __future__ import annotations

from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda import attention_estimate_mma
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.nvidia_fp8 import Fp8Schedule
from tilewright.ops.attention.nvidia_mma import MmaSchedule
from tilewright.ops.attention.nvidia_schedules import CombineSchedule, WsSchedule
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

START = 4e-6
ITEM = 1.2e-6  # to begin and to end an item, beside nothing
UNIT_MACS = 2.9e12  # products a second of one multiprocessor
UNIT_SCORES = 2.0e10  # exponentials a second of one, with what belongs to them
SCORED = 2.0  # how much longer scores take that something is done to
OVERLAP = 0.25  # of the shorter of both that is not hidden where warpgroups take turns
UNIT_BYTES = 6e10  # a second that one multiprocessor fetches
MEMORY = 4e12
BUSY_BYTES = 9.6e4  # under way, that keep a multiprocessor's share of memory busy
CARRY = 0.6e-6  # rows of packed heads, which threads carry
LOOP_MACS = 4e11
LOOP_KEY = 3e-8  # of one key after another on one warp


def seconds(spec: KernelSpec, problem: AttentionProblem) -> float:
    if isinstance(spec.schedule, WsSchedule):
        return _ws(spec, spec.schedule, problem)
    if isinstance(spec.schedule, Fp8Schedule):
        return attention_estimate_mma.fp8_seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, MmaSchedule):
        return attention_estimate_mma.seconds(spec, spec.schedule, problem)
    if isinstance(spec.schedule, CombineSchedule):
        read = 4.0 * problem.splits * problem.head_v * problem.heads_q * problem.batch * problem.rows
        return START + read / MEMORY
    longest = problem.keys if problem.family in ("forward", "split") else 1
    return START + max(problem.flops / 2 / LOOP_MACS, longest * LOOP_KEY, problem.bytes / MEMORY * 4)


def _whole(x: int, y: int) -> int:
    return -(-x // y)


def _ws(spec: KernelSpec, h: WsSchedule, p: AttentionProblem) -> float:
    s: AttentionSignature = spec.signature
    units = arch_by_name(spec.arch).compute_units or 1
    group = p.heads_q // max(1, p.heads_kv) if h.pipeline == "decode" else 1
    rows = p.rows if not p.packed else max(1, p.total_rows // max(1, p.batch))
    tiles = _whole(rows * group, h.tile_m) * p.batch * (p.heads_q // group)
    items = max(1, tiles * max(1, p.splits))
    # Tiles of keys an item meets: of its window, and what hangs over at both its ends.
    seen = p.pairs / max(1, p.batch * p.heads_q * rows)
    edge = h.tile_m / group / 2 if p.bounded else 0
    steps = max(1.0, (min(float(p.keys), seen + edge) / max(1, p.splits) / h.tile_n))
    if not p.bounded:
        steps = _whole(_whole(p.keys, h.tile_n), max(1, p.splits)) or 1
    scores = h.tile_m * h.tile_n
    multiply = scores * (s.head_qk + s.head_v) / UNIT_MACS * h.together
    weigh = scores / UNIT_SCORES * h.together
    if s.bias != "none" or s.masked or s.softcap or s.dropout:
        weigh *= SCORED
    apart = OVERLAP if h.warpgroups > 1 else 1.0
    stage = h.tile_n * (s.head_qk + s.head_v) * DTYPES[s.dtype_kv].bytes * h.together  # of all blocks
    fetch = stage / UNIT_BYTES * max(1.0, BUSY_BYTES / (h.stages * stage))
    step = max(max(multiply, weigh) + apart * min(multiply, weigh), fetch)
    places = units * h.together
    even = h.dealing == "dynamic" or not p.bounded
    waves = max(1.0, items / places) if even and p.bounded else float(_whole(items, places))
    return START + max(waves * (steps * step + ITEM + CARRY * (h.pipeline == "decode")), p.bytes / MEMORY)
