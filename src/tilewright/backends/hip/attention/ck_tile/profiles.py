"""Receipts and profiles of CK Tile's dispatcher: named subsets of its attention kernels, each a question to a kernel.

A profile goes by its name or by the number of its receipt.  `sinks` of flash_fwd and pytorch: the dispatcher's profile
and its enumerator disagree about kernels with sinks; here both leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.backends.hip.attention.ck_tile.instance import BACKWARD, Instance
from tilewright.errors import UnknownNameError, nearest

Allows = Callable[[Instance], bool]

_HALVES = ("fp16", "bf16")
_AITER = ("fp16", "bf16", "fp8bf16")


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    receipt: int  # -1: none
    summary: str
    allows: Allows


def _flash_fwd(inst: Instance) -> bool:
    return (
        inst.family in ("fwd", "fwd_splitkv", "fwd_splitkv_combine", "fwd_appendkv", "fwd_pagedkv")
        and inst.data_type in _HALVES
        and inst.vlayout == "r"
        and inst.bias in ("no", "alibi")
        and inst.qscale == "no"
        and not inst.skip_min_seqlen_q
        and not inst.sink
    )


def _pytorch(inst: Instance) -> bool:
    return (
        inst.data_type in _HALVES
        and inst.vlayout == "r"
        and inst.bias in ("no", "bias")
        and inst.qscale == "no"
        and not (inst.skip_min_seqlen_q or inst.logits or inst.sink)
    )


def _aiter(inst: Instance) -> bool:
    return (
        inst.data_type in _AITER and inst.vlayout == "r" and (inst.data_type != "fp8bf16" or inst.hdim_q in (128, 192))
    )


def _fp32_min(inst: Instance) -> bool:
    plain = inst.bias == "no" and inst.qscale == "no" and not (inst.lse or inst.dropout)
    return inst.data_type == "fp32" and inst.mode == "batch" and {inst.hdim_q, inst.hdim_v} <= {48, 128} and plain


def _backward(inst: Instance, mode: str = "") -> bool:
    return inst.family in BACKWARD and inst.data_type in _HALVES and mode in ("", inst.mode)


_ALL = (
    Profile("ck_default", 0, "every element type but fp32", lambda inst: inst.data_type != "fp32"),
    Profile("ck_extended", 1, "ck_default, and pipeline qr where it would take qr_async",
            lambda inst: inst.data_type != "fp32"),
    Profile("flash_fwd", 2, "what flash-attn takes: fp16 and bf16, no bias or ALiBi", _flash_fwd),
    Profile("flash_bwd", 3, "backward of flash-attn", _backward),
    Profile("pytorch", 4, "what PyTorch takes: fp16 and bf16, bias or none, no soft cap", _pytorch),
    Profile("aiter_batch", 100, "what aiter takes, padded batches", lambda inst: _aiter(inst) and inst.mode == "batch"),
    Profile("aiter_group", 200, "what aiter takes, packed lengths",
            lambda inst: inst.data_type in _AITER and inst.vlayout == "r" and inst.mode == "group"),
    Profile("aiter_bwd_batch", 300, "backward of aiter, padded batches", lambda inst: _backward(inst, "batch")),
    Profile("aiter_bwd_group", 400, "backward of aiter, packed lengths", lambda inst: _backward(inst, "group")),
    Profile("aiter_cpp", 600, "what aiter takes from C++", _aiter),
    Profile("fp32_all", 800, "fp32 without soft cap",
            lambda inst: inst.data_type == "fp32" and not inst.skip_min_seqlen_q and not inst.logits),
    Profile("fp32_min", 801, "a few of fp32", _fp32_min),
    Profile("fp8_test", 888, "fp8 inputs with bf16 or fp32 results",
            lambda inst: (inst.data_type in ("fp8bf16", "fp8fp32") and inst.hdim_q in (128, 192)
                          and inst.vlayout == "r")),
    Profile("all", -1, "everything", lambda inst: True),
)  # fmt: skip
PROFILES: Mapping[str, Profile] = {known.name: known for known in _ALL}
_FORWARD = [known for known in PROFILES.values() if "bwd" not in known.name]
POOLS = {known.name: known.summary for known in _FORWARD} | {
    str(known.receipt): f"{known.name}, by its receipt" for known in _FORWARD if known.receipt >= 0
}  # pools by the names of profiles
RECEIPTS: Mapping[int, Profile] = {known.receipt: known for known in _ALL if known.receipt >= 0}


def profile(which: str | int) -> Profile:
    """By name or by receipt; an unknown one is an error with the nearest."""
    word = str(which).lower()
    if word in PROFILES:
        return PROFILES[word]
    if word.isdigit() and int(word) in RECEIPTS:
        return RECEIPTS[int(word)]
    raise UnknownNameError(
        f"{which!r} is neither a profile nor a receipt of attention kernels",
        rule="attention-profile",
        value=str(which),
        remedy=f"{nearest(word, list(PROFILES))}; receipts are {', '.join(map(str, RECEIPTS))}",
    )
