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


def _flash_fwd(one: Instance) -> bool:
    return (
        one.family in ("fwd", "fwd_splitkv", "fwd_splitkv_combine", "fwd_appendkv", "fwd_pagedkv")
        and one.data_type in _HALVES
        and one.vlayout == "r"
        and one.bias in ("no", "alibi")
        and one.qscale == "no"
        and not one.skip_min_seqlen_q
        and not one.sink
    )


def _pytorch(one: Instance) -> bool:
    return (
        one.data_type in _HALVES
        and one.vlayout == "r"
        and one.bias in ("no", "bias")
        and one.qscale == "no"
        and not (one.skip_min_seqlen_q or one.logits or one.sink)
    )


def _aiter(one: Instance) -> bool:
    return one.data_type in _AITER and one.vlayout == "r" and (one.data_type != "fp8bf16" or one.hdim_q in (128, 192))


def _fp32_min(one: Instance) -> bool:
    plain = one.bias == "no" and one.qscale == "no" and not (one.lse or one.dropout)
    return one.data_type == "fp32" and one.mode == "batch" and {one.hdim_q, one.hdim_v} <= {48, 128} and plain


def _backward(one: Instance, mode: str = "") -> bool:
    return one.family in BACKWARD and one.data_type in _HALVES and mode in ("", one.mode)


_ALL = (
    Profile("ck_default", 0, "every element type but fp32", lambda one: one.data_type != "fp32"),
    Profile("ck_extended", 1, "ck_default, and pipeline qr where it would take qr_async",
            lambda one: one.data_type != "fp32"),
    Profile("flash_fwd", 2, "what flash-attn takes: fp16 and bf16, no bias or ALiBi", _flash_fwd),
    Profile("flash_bwd", 3, "backward of flash-attn", _backward),
    Profile("pytorch", 4, "what PyTorch takes: fp16 and bf16, bias or none, no soft cap", _pytorch),
    Profile("aiter_batch", 100, "what aiter takes, padded batches", lambda one: _aiter(one) and one.mode == "batch"),
    Profile("aiter_group", 200, "what aiter takes, packed lengths",
            lambda one: one.data_type in _AITER and one.vlayout == "r" and one.mode == "group"),
    Profile("aiter_bwd_batch", 300, "backward of aiter, padded batches", lambda one: _backward(one, "batch")),
    Profile("aiter_bwd_group", 400, "backward of aiter, packed lengths", lambda one: _backward(one, "group")),
    Profile("aiter_cpp", 600, "what aiter takes from C++", _aiter),
    Profile("fp32_all", 800, "fp32 without soft cap",
            lambda one: one.data_type == "fp32" and not one.skip_min_seqlen_q and not one.logits),
    Profile("fp32_min", 801, "a few of fp32", _fp32_min),
    Profile("fp8_test", 888, "fp8 inputs with bf16 or fp32 results",
            lambda one: one.data_type in ("fp8bf16", "fp8fp32") and one.hdim_q in (128, 192) and one.vlayout == "r"),
    Profile("all", -1, "everything", lambda one: True),
)  # fmt: skip
PROFILES: Mapping[str, Profile] = {one.name: one for one in _ALL}
_FORWARD = [one for one in PROFILES.values() if "bwd" not in one.name]
POOLS = {one.name: one.summary for one in _FORWARD} | {
    str(one.receipt): f"{one.name}, by its receipt" for one in _FORWARD if one.receipt >= 0
}  # pools by the names of profiles
RECEIPTS: Mapping[int, Profile] = {one.receipt: one for one in _ALL if one.receipt >= 0}


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
