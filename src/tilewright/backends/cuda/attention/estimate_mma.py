"""How long attention takes by the mma and fp8 pipelines, about: as `attention_estimate` says it of the others.

A step of an item is a tile of keys: products, exponentials and, of fp8, the widening of bytes follow each other in a
warp; other warps and blocks of the multiprocessor fill the gaps up to a part.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import arch as arch_by_name
from tilewright.arch import fitted
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Launch,
    Memory,
    UnitCache,
    UnitClock,
    UnitMemory,
    UnitMma,
    UnitWgmmaFp8,
)
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.mma import MmaSchedule, narrow
from tilewright.backends.cuda.attention.traversal import walk
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

SCORED = 2.0  # how much longer exponentials take of scores that something is done to
BESIDE_WGMMA = 1.4  # guessed constants stand back behind the fitted ones of kernels with wgmma
ALONE = 1.3  # how much longer a step takes where one block has the multiprocessor for itself


class Constants(NamedTuple):
    """What depends on the device: `attention_mma` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    meet: Cycles  # of warps that share rows, at each tile
    unit_macs: UnitMma  # products a second of one multiprocessor
    unit_scores: UnitClock  # and exponentials
    widened: UnitClock  # bytes of fp8 a second, each for each warp along rows
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second
    busy_bytes: UnitMemory  # under way, that keep a multiprocessor's share of memory busy
    fp8_macs: UnitWgmmaFp8  # products of fp8 by wgmma beside exponentials
    fp8_tile: Cycles  # to wait for and to begin a tile of them


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("attention_mma", Constants, arch)


def seconds(spec: KernelSpec, h: MmaSchedule, p: AttentionProblem) -> float:
    c = constants(spec.arch)
    group = p.heads_q // max(1, p.heads_kv) if h.pipeline == "mma_decode" else 1
    walked = walk(p, h, group)
    waves = walked.waves(c.units * h.together)
    step = _step(c, spec.signature, h)
    memory = p.bytes / c.memory
    taken = c.start + max(waves * (walked.steps * step + c.item), memory)
    return taken * BESIDE_WGMMA if "wgmma" in arch_by_name(spec.arch).features else taken


def fp8_seconds(spec: KernelSpec, h: Fp8Schedule, p: AttentionProblem) -> float:
    s: AttentionSignature = spec.signature
    c = constants(spec.arch)
    walked = walk(p, h, 1)
    waves = walked.waves(c.units)
    scores = h.tile_m * h.tile_n
    multiply, weigh = scores * (s.head_dim + s.head_dim_v) / c.fp8_macs, scores / c.unit_scores
    if s.bias != "none" or s.masked or s.softcap or s.dropout:
        weigh *= SCORED
    step = c.fp8_tile + max(multiply, weigh) + (0.0 if h.warpgroups > 1 else min(multiply, weigh))
    return c.start + max(waves * (walked.steps * step + c.item), p.bytes / c.memory)


def _step(c: Constants, s: AttentionSignature, h: MmaSchedule) -> float:
    """Seconds of a tile of keys in each of the blocks of a multiprocessor."""
    scores = h.tile_m * h.tile_n
    multiply = scores * (s.head_dim + s.head_dim_v) / c.unit_macs
    weigh = scores / c.unit_scores
    if s.bias != "none" or s.masked or s.softcap or s.dropout or s.scales == "block":
        weigh *= SCORED
    stage = h.tile_n * (s.head_dim + s.head_dim_v) * DTYPES[s.dtype_kv].bytes
    widen = stage * h.warps_m / c.widened if narrow(s) else 0.0
    work = (multiply + weigh + widen) * h.together * (ALONE if h.together == 1 else 1.0)
    fetch = stage * h.together / c.unit_bytes * max(1.0, c.busy_bytes / (h.slots * stage * h.together / 2))
    return max(work + c.meet * (h.warps_n > 1), fetch)
