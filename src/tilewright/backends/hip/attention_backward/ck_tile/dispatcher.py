"""Kernels of gradients in the words of CK Tile's dispatcher, and which of them its generator of mid-2025 writes.

Of each head size of `TILES` and each half type: `dq_dk_dv` with edge code of rows and keys in every combination (all of
it where lengths are packed) and of both heads, two masks, a bias with and without its gradient, ALiBi, dropout whose
numbers are stored or not, sums in order or not; `dot_do_o` and `convert_dq` with edge code of rows and of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.backends.hip.attention.ck_tile.profiles import violation
from tilewright.backends.hip.attention_backward.ck_tile.receipts import pool_profile
from tilewright.backends.hip.attention_backward.ck_tile.tiles import (
    ROWS,
    TILES,
    CkRowsSchedule,
    CkTileBackwardSchedule,
    usual_pipeline,
)
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized
from tilewright.ops.base import Violation

Schedule = CkTileBackwardSchedule | CkRowsSchedule

FAMILY = {"dot": "bwd_dot_do_o", "grad": "bwd_dq_dk_dv", "convert": "bwd_convert_dq"}
_BIAS = {"none": "no", "tensor": "bias", "alibi": "alibi"}
_BOTH = (False, True)
_TYPES = ("fp16", "bf16", "fp32")  # of the last these headers have nothing: rules say so


def computed(signature: AttentionBackwardSignature, arch: str) -> Instance:
    """What a signature computes; how is still open."""
    s = signature
    return Instance(
        arch=arch, family=FAMILY[s.family], data_type=s.dtype, mode="group" if s.varlen else "batch",
        hdim_q=s.head_dim, hdim_v=s.head_dim_v, mask="no" if s.mask == "none" else "top_left", bias=_BIAS[s.bias],
        dropout=s.dropout, dropout_variant="dropout_wg16" if s.dropout else "no", logits=s.softcap,
        sink=s.mask == "generic", dbias=s.dbias, block_per_cu=-1,
    )  # fmt: skip


def instance(signature: AttentionBackwardSignature, schedule: Schedule, arch: str) -> Instance:
    """A spec in the dispatcher's words."""
    inst = replace(computed(signature, arch), pipeline="qr", deterministic=schedule.deterministic)
    if isinstance(schedule, CkTileBackwardSchedule):
        variant = "dropout_wg16_storerandval" if schedule.store_randval else inst.dropout_variant
        return replace(
            inst, tile=schedule.tile, wave=schedule.warp_grid, warp=(*schedule.warp_tile, 16, 16, 16),
            padding=schedule.pad, dropout_variant=variant, block_per_cu=schedule.block_per_cu,
        )  # fmt: skip
    rows, head = schedule.pad
    pads = (rows, True, True, head) if schedule.pipeline == "dot_do_o" else (rows, True, head, True)
    return replace(inst, tile=(ROWS, 128, 32, 128, 32, 128), padding=pads)


def generated(signature: AttentionBackwardSignature) -> Iterator[Schedule]:
    """The kernels of CK Tile's generator that compute a signature."""
    s = signature
    if s.head_dim != s.head_dim_v or s.head_dim not in TILES or s.masked or s.softcap or s.mask == "generic":
        return
    edges = [(rows, keys) for rows, keys in product(_BOTH, _BOTH) if not s.varlen or (rows and keys)]
    if s.family != "grad":
        pipeline = "dot_do_o" if s.family == "dot" else "convert_dq"
        for rows, head in product(dict.fromkeys(rows for rows, _ in edges), _BOTH):
            for ordered in _BOTH if s.family == "convert" else (False,):
                yield CkRowsSchedule(pipeline, (rows, head), ordered)
        return
    tile, grid = TILES[s.head_dim]
    for (rows, keys), head_qk, head_v in product(edges, _BOTH, _BOTH):
        pipeline = "kr_ktr_vr" if head_qk or head_v else usual_pipeline(s.head_dim)
        for stored, ordered in product(_BOTH if s.dropout else (False,), _BOTH):
            yield CkTileBackwardSchedule(pipeline, tile, grid, pad=(rows, keys, head_qk, head_v),
                                         deterministic=ordered, store_randval=stored)  # fmt: skip


def profile_schedules(pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Schedule]:
    chosen = pool_profile(pool)
    for schedule in generated(signature):
        if chosen.allows(instance(signature, schedule, arch.name)):
            yield schedule


def profile_violations(pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
    """What of a signature a pool has nothing for."""
    chosen = pool_profile(pool)
    inst = computed(signature, arch.name)
    if not chosen.allows(inst):
        yield violation("amd-backward-profile", chosen, signature.label(), inst)


def pool_signatures() -> Iterator[AttentionBackwardSignature]:
    """What the generator enumerates, and fp32, of which it has nothing.

    Query heads that share keys, and packed rows, leave sums of all results: theirs are added up by the caller.
    """
    added: tuple[dict[str, Any], ...] = (
        {}, {"bias": "tensor"}, {"bias": "tensor", "dbias": True}, {"bias": "alibi"}
    )  # fmt: skip
    for kind, size, packed in product(_TYPES, TILES, _BOTH):
        heads: dict[str, Any] = {"dtype": kind, "head_dim": size, "head_dim_v": size, "varlen": packed}
        yield normalized(AttentionBackwardSignature("dot", **heads))
        for sums in ("all",) if packed else ("dq", "all"):
            for mask, more, dropout in product(("none", "window"), added, _BOTH):
                more = {**more, "mask": mask, "dropout": dropout}
                yield normalized(AttentionBackwardSignature("grad", **heads, accumulate=sums, dtype_aux=kind, **more))
            yield normalized(AttentionBackwardSignature("convert", **heads, accumulate=sums))
