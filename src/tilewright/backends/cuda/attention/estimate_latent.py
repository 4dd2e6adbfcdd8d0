"""How long attention takes by the latent pipeline, about: as `attention_estimate` says it of the others.

A step of an item is a tile of keys: scores, exponentials and values follow each other while the next tiles come.
On an H200 four problems of decode, with their second stage, took 2 to 30 % longer than this says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import fitted
from tilewright.arch.rates import ComputeUnits, Cycles, Launch, Memory, UnitCache, UnitClock, UnitWgmma
from tilewright.backends.cuda.attention.latent import LatentSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

SCORED = 2.0  # how much longer exponentials take of scores that something is done to


class Constants(NamedTuple):
    """What depends on the device: `attention_latent` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    unit_macs: UnitWgmma  # products a second of one multiprocessor
    unit_scores: UnitClock  # and exponentials
    step: Cycles  # of barriers
    fetch: Cycles  # of a tile that was asked for
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("attention_latent", Constants, arch)


def seconds(spec: KernelSpec, h: LatentSchedule, p: AttentionProblem) -> float:
    s: AttentionSignature = spec.signature
    c = constants(spec.arch)
    units, batch, splits = c.units, max(1, p.batch), max(1, p.num_splits)
    rows = p.seqlen_q if not p.varlen else max(1, p.total_q // batch)
    group = p.heads_q // max(1, p.heads_kv)
    items = max(1, -(-rows * group // h.tile_m) * batch * p.heads_kv * splits)
    seen = p.pairs / max(1, batch * p.heads_q * rows) + (h.tile_m / group / 2 if p.bounded else 0)
    steps = max(1.0, min(float(p.seqlen_k), seen) / splits / h.tile_n)
    waves = max(1.0, items / units) if p.bounded else float(-(-items // units))
    step = _step(c, s, h)
    read = p.bytes - batch * p.heads_kv * p.seqlen_k * p.head_dim_v * DTYPES[s.dtype_kv].bytes  # a latent once
    return c.start + max(waves * (steps * step + c.item), read / c.memory)


def _step(c: Constants, s: AttentionSignature, h: LatentSchedule) -> float:
    scores = h.tile_m * h.tile_n
    weigh = scores / c.unit_scores
    if s.bias != "none" or s.masked or s.softcap or s.dropout:
        weigh *= SCORED
    work = scores * (s.head_dim + s.head_dim_v) / c.unit_macs + weigh + c.step
    stage = h.tile_n * s.head_dim * DTYPES[s.dtype_kv].bytes / c.unit_bytes
    return max(work, stage, (work + c.fetch + stage) / h.stages)
