"""Attention on NVIDIA GPUs: what is legal, and what a legal kernel was not made for.

ws       sm_90a: the copy engine feeds wgmma, softmax beside multiplications; rows of 16 bytes
decode   the same with the query heads of one head of keys packed into a tile of rows
shares   the same again, all keys there are dealt in equal shares; pieces are put together by the last who has one
fp8      sm_90a: both products in e4m3 (`nvidia_fp8.py`)
latent   sm_90a: heads of 576 whose values are the first 512 of their keys (`nvidia_latent.py`)
mma, mma_decode   sm_80 on, and what the copy engine does not read: mma.sync and cp.async (`nvidia_mma.py`)
combine  parts put together, a team of warps for a row of one head
loops    the floor: any size, stride, element type and feature; also parts put together, and appended rows
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cuda.attention import fp8 as nvidia_fp8
from tilewright.backends.cuda.attention import latent as nvidia_latent
from tilewright.backends.cuda.attention import mma as nvidia_mma
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.latent import LatentSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.backends.cuda.attention.schedules import (
    COLUMNS,
    HEADS_QK,
    HEADS_V,
    ROWS,
    CombineSchedule,
    WsSchedule,
    allowed_registers,
    available_bytes,
    registers,
    schedules,
    shared_bytes,
)
from tilewright.backends.cuda.attention.shared import INPUTS, engine_rules, register_rule, shared_rule
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem, Sizes
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import Violation

__all__ = ["RULES", "SCHEDULES", "generic_schedule", "limits", "schedules", "signature_rules"]

USUAL = "bf16"
SCHEDULES: tuple[type[AttentionSchedule], ...] = (
    WsSchedule, Fp8Schedule, LatentSchedule, MmaSchedule, CombineSchedule, LoopsSchedule,
)  # fmt: skip
LINE_BYTES = 16  # what the copy engine asks of addresses and strides
MOST = 1 << 30  # rows, keys, and rows of heads: places are int32


def signature_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from signature_violations(signature)
    if "fp8_e4m3fnuz" in (signature.dtype_q, signature.dtype_kv):
        yield Violation("dtype-input", "NVIDIA GPUs have no kernels for fp8_e4m3fnuz", "use fp8_e4m3")


def _signature(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _ws_signature(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, WsSchedule):
        return
    s = signature
    yield from engine_rules(schedule.pipeline, s, arch, INPUTS, "the mma pipeline")
    if s.head_dim not in HEADS_QK or s.head_dim_v not in HEADS_V:
        message = f"heads of {s.head_dim} and {s.head_dim_v}"
        yield Violation("nv-heads", message, f"use {', '.join(map(str, HEADS_V))}, or the loops pipeline")


def _ws_tile(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, WsSchedule):
        return
    h = schedule
    if h.tile_n not in COLUMNS:
        yield Violation("nv-tile-n", f"tile_n {h.tile_n} is not one wgmma wide in whole 16s", "use 64 or 128")
    allowed = allowed_registers(signature, h)
    if allowed is None:
        message = f"{h.warpgroups} multiplying warpgroups, {h.together} blocks of a multiprocessor"
        yield Violation("nv-warpgroups", message, "use 1 to 3 and one block, or 1 and two blocks")
    else:
        yield from register_rule(registers(signature, h), allowed, "use a smaller tile_n or fewer warpgroups")
    if not 1 <= h.row_stages <= (2 if h.pipeline == "ws" else 1):
        message = f"{h.row_stages} tiles of rows under way in {h.pipeline}"
        yield Violation("nv-row-stages", message, "use 1, or 2 with ws")
    if h.pipeline == "shares" and (signature.family != "forward" or h.warpgroups > 1 or h.dealing != "striped"):
        message = f"shares of {signature.family}, {h.warpgroups} multiplying warpgroups, {h.dealing}"
        yield Violation("nv-shares", message, "use the forward family, one warpgroup and striped, or decode")
    if h.stages > MAX_STAGES:
        yield Violation("nv-stages", f"{h.stages} stages", f"use at most {MAX_STAGES}")
    yield from shared_rule(shared_bytes(signature, h), available_bytes(h, arch))


MAX_STAGES = 16


def _combine(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, CombineSchedule) and schedule.warps not in (1, 2, 4, 8):
        yield Violation("nv-warps", f"{schedule.warps} warps share the parts of a row", "use 1, 2, 4 or 8")


RULES = (_signature, _ws_signature, _ws_tile, *nvidia_fp8.RULES, *nvidia_latent.RULES, *nvidia_mma.RULES, _combine)


def limits(schedule: AttentionSchedule, problem: AttentionProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    p = problem
    if isinstance(schedule, MmaSchedule):
        yield from nvidia_mma.limits(schedule, p)
    if isinstance(schedule, CombineSchedule) and 0 not in (p.batch, p.seqlen_q) and p.head_dim_v % 4:
        yield _violation("nv-alignment", "rows of the parts are no whole 16 bytes")
    if not isinstance(schedule, (WsSchedule, Fp8Schedule, LatentSchedule)) or 0 in (p.batch, p.seqlen_q):
        return
    if max(p.seqlen_q, p.seqlen_k, p.total_q, p.total_k, p.sink_tokens) >= MOST:
        yield _violation("nv-size", "2^30 or more rows or keys")
    if p.seqlen_q * p.heads_q * p.batch * max(1, p.num_splits) >= MOST:
        yield _violation("nv-size", "2^30 or more rows of heads")
    out = DTYPES[p.dtype_out].bytes
    if p.head_dim_v * out % LINE_BYTES:
        yield _violation("nv-alignment", "a head's results are no whole 16 bytes")
    if schedule.pipeline == "shares" and p.seqlen_q * (p.heads_q // max(1, p.heads_kv)) > ROWS:
        yield _violation("nv-rows", f"more than {ROWS} rows read a head of keys")
    if schedule.pipeline == "shares" and p.batch * p.heads_kv * max(1, -(-p.seqlen_k // schedule.tile_n)) >= MOST:
        yield _violation("nv-size", "2^30 or more tiles of keys")
    if schedule.pipeline in ("decode", "shares", "latent") and p.head_dim % 8:
        yield _violation("nv-alignment", "a head's elements are no whole 16 bytes")
    read = all(_readable(p.shape(one), getattr(p, f"{one}_strides"), DTYPES[p.dtype_q].bytes) for one in "qkv")
    if not p.aligned or not read or any(one * out % LINE_BYTES for one in p.o_strides):
        yield _violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes, or 0")


def _readable(shape: Sizes, strides: Sizes, size: int) -> bool:
    """Strides of what there is more than one of."""
    if 0 in shape[:2]:
        return True
    return all(n == 1 or (one > 0 and one * size % LINE_BYTES == 0) for n, one in zip(shape, strides, strict=False))


def _violation(rule: str, message: str) -> Violation:
    return Violation(rule, message, "use another kernel of the pool")


def generic_schedule(signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()
