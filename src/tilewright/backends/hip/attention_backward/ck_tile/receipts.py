"""Receipts of CK's generator of gradients, which are narrower than the dispatcher's profiles of the same number.

A pool that is named by such a number holds what the generator writes for it; one that is named as a profile, what the
dispatcher's profile allows.  Of numbers that are not here both hold the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.backends.hip.attention.ck_tile.instance import BACKWARD
from tilewright.backends.hip.attention.ck_tile.profiles import BACKWARD_POOLS, Demand, Profile, profile

_HALVES = ("fp16", "bf16")
_GRADIENTS = Demand("gradients of fp16 or bf16", lambda inst: inst.family in BACKWARD and inst.data_type in _HALVES)
_NO_TENSOR = Demand("a bias of no or alibi", lambda inst: inst.bias in ("no", "alibi"))
_NO_ALIBI = Demand("a bias of no or bias", lambda inst: inst.bias in ("no", "bias"))
_NOT_STORED = Demand("draws that are not stored", lambda inst: not inst.dropout_variant.endswith("storerandval"))
_HEADS_ALIKE = Demand(
    "edge code of both heads or of none",
    lambda inst: inst.family != "bwd_dq_dk_dv" or inst.padding[2] == inst.padding[3],
)
_UNORDERED = Demand("sums in any order", lambda inst: not inst.deterministic)
_BATCH = Demand("padded batches", lambda inst: inst.mode == "batch")
_GROUP = Demand("packed lengths", lambda inst: inst.mode == "group")

_ALL = (
    Profile("flash", 2, "flash-attn's: no bias or ALiBi, draws are not stored",
            (_GRADIENTS, _NO_TENSOR, _NOT_STORED, _HEADS_ALIKE)),
    Profile("flash_bwd", 3, "no bias or ALiBi, sums in any order",
            (_GRADIENTS, _NO_TENSOR, _HEADS_ALIKE, _UNORDERED)),
    Profile("pytorch", 4, "PyTorch's: bias or none, sums in any order, draws are not stored",
            (_GRADIENTS, _NO_ALIBI, _NOT_STORED, _HEADS_ALIKE, _UNORDERED)),
    Profile("aiter_bwd_batch", 300, "aiter's padded batches, draws are not stored", (_GRADIENTS, _BATCH, _NOT_STORED)),
    Profile("aiter_bwd_group", 400, "aiter's packed lengths, draws are not stored", (_GRADIENTS, _GROUP, _NOT_STORED)),
)  # fmt: skip
RECEIPTS: Mapping[str, Profile] = {str(known.receipt): known for known in _ALL}
# Every pool that is named after a profile or a receipt, with a sentence.
POOLS: Mapping[str, str] = {**BACKWARD_POOLS, **{name: known.summary for name, known in RECEIPTS.items()}}


def pool_profile(pool: str) -> Profile:
    """What a pool asks of its kernels."""
    return RECEIPTS.get(pool) or profile(pool)
