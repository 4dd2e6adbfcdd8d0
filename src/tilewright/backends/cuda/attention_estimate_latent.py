"""How long attention takes by the latent pipeline, about: as `attention_estimate` says it of the others.

A step of an item is a tile of keys: scores, exponentials and values follow each other while the next tiles come.
On an H200 four problems of decode, with their second stage, took 2 to 30 % longer than this says.
"""

from __future__ import annotations

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.nvidia_latent import LatentSchedule
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

START, ITEM = 4e-6, 1.5e-6  # of a launch, and to begin and to end an item
UNIT_MACS, UNIT_SCORES = 3.2e12, 2.0e10  # products and exponentials a second of one multiprocessor
SCORED = 2.0  # how much longer exponentials take of scores that something is done to
STEP, FETCH = 0.3e-6, 1.0e-6  # of barriers, and of a tile that was asked for
UNIT_BYTES, MEMORY = 5e10, 4e12


def seconds(spec: KernelSpec, h: LatentSchedule, p: AttentionProblem) -> float:
    s: AttentionSignature = spec.signature
    units, batch, splits = arch_by_name(spec.arch).compute_units or 1, max(1, p.batch), max(1, p.splits)
    rows = p.rows if not p.packed else max(1, p.total_rows // batch)
    group = p.heads_q // max(1, p.heads_kv)
    items = max(1, -(-rows * group // h.tile_m) * batch * p.heads_kv * splits)
    seen = p.pairs / max(1, batch * p.heads_q * rows) + (h.tile_m / group / 2 if p.bounded else 0)
    steps = max(1.0, min(float(p.keys), seen) / splits / h.tile_n)
    waves = max(1.0, items / units) if p.bounded else float(-(-items // units))
    step = _step(s, h)
    read = p.bytes - batch * p.heads_kv * p.keys * p.head_v * DTYPES[s.dtype_kv].bytes  # a latent once
    return START + max(waves * (steps * step + ITEM), read / MEMORY)


def _step(s: AttentionSignature, h: LatentSchedule) -> float:
    scores = h.tile_m * h.tile_n
    weigh = scores / UNIT_SCORES
    if s.bias != "none" or s.masked or s.softcap or s.dropout:
        weigh *= SCORED
    work = scores * (s.head_qk + s.head_v) / UNIT_MACS + weigh + STEP
    stage = h.tile_n * s.head_qk * DTYPES[s.dtype_kv].bytes / UNIT_BYTES
    return max(work, stage, (work + FETCH + stage) / h.stages)
