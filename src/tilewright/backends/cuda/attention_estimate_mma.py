"""How long attention takes by the mma and fp8 pipelines, about: as `attention_estimate` says it of the others.

A step of an item is a tile of keys: products, exponentials and, of fp8, the widening of bytes follow each other in a
warp; other warps and blocks of the multiprocessor fill the gaps up to a part.
"""

from __future__ import annotations

from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.attention_walk import walk
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.nvidia_fp8 import Fp8Schedule
from tilewright.ops.attention.nvidia_mma import MmaSchedule, narrow
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

START, ITEM, MEET = 4e-6, 1.5e-6, 0.15e-6  # of a launch, of an item, and of warps that share rows at each tile
UNIT_MACS, OLDER_MACS = 1.5e12, 0.9e12  # a second of one multiprocessor, of sm_90 and of those before
UNIT_SCORES = 2.0e10
SCORED = 2.0
WIDENED = 1.2e12  # bytes of fp8 a second, each for each warp along rows
UNIT_BYTES, MEMORY, OLDER_MEMORY = 5e10, 4e12, 1.6e12
BUSY_BYTES = 9.6e4  # under way, that keep a multiprocessor's share of memory busy
FP8_MACS, FP8_TILE = 5.0e12, 0.63e-6  # products of fp8 by wgmma beside exponentials; to wait for and to begin a tile
BESIDE_WGMMA = 1.4  # guessed constants stand back behind the fitted ones of kernels with wgmma
ALONE = 1.3  # how much longer a step takes where one block has the multiprocessor for itself


def seconds(spec: KernelSpec, h: MmaSchedule, p: AttentionProblem) -> float:
    arch = arch_by_name(spec.arch)
    newer = "wgmma" in arch.features
    group = p.heads_q // max(1, p.heads_kv) if h.pipeline == "mma_decode" else 1
    walked = walk(p, h, group)
    waves = walked.waves((arch.compute_units or 1) * h.together)
    step = _step(spec.signature, h, UNIT_MACS if newer else OLDER_MACS)
    memory = p.bytes / (MEMORY if newer else OLDER_MEMORY)
    taken = START + max(waves * (walked.steps * step + ITEM), memory)
    return taken * BESIDE_WGMMA if newer else taken


def fp8_seconds(spec: KernelSpec, h: Fp8Schedule, p: AttentionProblem) -> float:
    s: AttentionSignature = spec.signature
    walked = walk(p, h, 1)
    waves = walked.waves(arch_by_name(spec.arch).compute_units or 1)
    scores = h.tile_m * h.tile_n
    multiply, weigh = scores * (s.head_qk + s.head_v) / FP8_MACS, scores / UNIT_SCORES
    if s.bias != "none" or s.masked or s.softcap or s.dropout:
        weigh *= SCORED
    step = FP8_TILE + max(multiply, weigh) + (0.0 if h.warpgroups > 1 else min(multiply, weigh))
    return START + max(waves * (walked.steps * step + ITEM), p.bytes / MEMORY)


def _step(s: AttentionSignature, h: MmaSchedule, macs: float) -> float:
    """Seconds of a tile of keys in each of the blocks of a multiprocessor."""
    scores = h.tile_m * h.tile_n
    multiply = scores * (s.head_qk + s.head_v) / macs
    weigh = scores / UNIT_SCORES
    if s.bias != "none" or s.masked or s.softcap or s.dropout or s.scales == "block":
        weigh *= SCORED
    stage = h.tile_n * (s.head_qk + s.head_v) * DTYPES[s.dtype_kv].bytes
    widen = stage * h.warps_m / WIDENED if narrow(s) else 0.0
    work = (multiply + weigh + widen) * h.together * (ALONE if h.together == 1 else 1.0)
    fetch = stage * h.together / UNIT_BYTES * max(1.0, BUSY_BYTES / (h.slots * stage * h.together / 2))
    return max(work + MEET * (h.warps_n > 1), fetch)
