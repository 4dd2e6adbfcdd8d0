"""Receipts and profiles of CK Tile's dispatcher: named subsets of its attention kernels, each some demands on a kernel.

A profile goes by its name or by the number of its receipt.  `sinks` of flash_fwd and pytorch: the dispatcher's profile
and its enumerator disagree about kernels with sinks; here both leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.backends.hip.attention.ck_tile.instance import BACKWARD, Instance
from tilewright.dataclass import dataclass
from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.base import Violation

Allows = Callable[[Instance], bool]

_HALVES = ("fp16", "bf16")
_AITER = ("fp16", "bf16", "fp8bf16")
_FLASH = ("fwd", "fwd_splitkv", "fwd_splitkv_combine", "fwd_appendkv", "fwd_pagedkv")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a profile asks of its kernels, in words and as a question."""

    what: str
    met: Allows


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    receipt: int  # -1: none
    summary: str
    demands: tuple[Demand, ...]

    def allows(self, inst: Instance) -> bool:
        return all(demand.met(inst) for demand in self.demands)

    def unmet(self, inst: Instance) -> str:
        """What it asks for first that the kernel is not; empty where it allows it."""
        return next((demand.what for demand in self.demands if not demand.met(inst)), "")


def _types(*names: str) -> Demand:
    return Demand(f"kernels of {', '.join(names)}", lambda inst: inst.data_type in names)


def _bias(*names: str) -> Demand:
    return Demand(f"a bias of {' or '.join(names)}", lambda inst: inst.bias in names)


def _mode(name: str) -> Demand:
    what = {"batch": "padded batches", "group": "packed lengths"}[name]
    return Demand(what, lambda inst: inst.mode == name)


_NOT_FP32 = Demand("kernels of other types than fp32", lambda inst: inst.data_type != "fp32")
_FORWARD_ONLY = Demand("kernels of the forward pass", lambda inst: inst.family in _FLASH)
_BACKWARD_ONLY = Demand("kernels of gradients", lambda inst: inst.family in BACKWARD)
_ROWS_OF_V = Demand("rows of V side by side", lambda inst: inst.vlayout == "r")
_UNSCALED = Demand("no scales of q", lambda inst: inst.qscale == "no")
_NO_SKIP = Demand("no sequences that are skipped", lambda inst: not inst.skip_min_seqlen_q)
_NO_SINK = Demand("no sinks", lambda inst: not inst.sink)
_NO_CAP = Demand("no soft cap", lambda inst: not inst.logits)
_FP8_HEADS = Demand("heads of 128 or 192 where elements are fp8",
                    lambda inst: inst.data_type != "fp8bf16" or inst.hdim_q in (128, 192))  # fmt: skip
_FEW_HEADS = Demand("heads of 48 or 128", lambda inst: {inst.hdim_q, inst.hdim_v} <= {48, 128})
_PLAIN = Demand("no lse and no dropout", lambda inst: not (inst.lse or inst.dropout))
_WIDE_FP8 = Demand("heads of 128 or 192", lambda inst: inst.hdim_q in (128, 192))
_BWD = (_BACKWARD_ONLY, _types(*_HALVES))

_ALL = (
    Profile("ck_default", 0, "every element type but fp32", (_NOT_FP32,)),
    Profile("ck_extended", 1, "ck_default, and pipeline qr where it would take qr_async", (_NOT_FP32,)),
    Profile("flash_fwd", 2, "what flash-attn takes: fp16 and bf16, no bias or ALiBi",
            (_FORWARD_ONLY, _types(*_HALVES), _ROWS_OF_V, _bias("no", "alibi"), _UNSCALED, _NO_SKIP, _NO_SINK)),
    Profile("flash_bwd", 3, "backward of flash-attn", _BWD),
    Profile("pytorch", 4, "what PyTorch takes: fp16 and bf16, bias or none, no soft cap",
            (_types(*_HALVES), _ROWS_OF_V, _bias("no", "bias"), _UNSCALED, _NO_SKIP, _NO_CAP, _NO_SINK)),
    Profile("aiter_batch", 100, "what aiter takes, padded batches",
            (_types(*_AITER), _ROWS_OF_V, _FP8_HEADS, _mode("batch"))),
    Profile("aiter_group", 200, "what aiter takes, packed lengths", (_types(*_AITER), _ROWS_OF_V, _mode("group"))),
    Profile("aiter_bwd_batch", 300, "backward of aiter, padded batches", (*_BWD, _mode("batch"))),
    Profile("aiter_bwd_group", 400, "backward of aiter, packed lengths", (*_BWD, _mode("group"))),
    Profile("aiter_cpp", 600, "what aiter takes from C++", (_types(*_AITER), _ROWS_OF_V, _FP8_HEADS)),
    Profile("fp32_all", 800, "fp32 without soft cap", (_types("fp32"), _NO_SKIP, _NO_CAP)),
    Profile("fp32_min", 801, "a few of fp32",
            (_types("fp32"), _mode("batch"), _FEW_HEADS, _bias("no"), _UNSCALED, _PLAIN)),
    Profile("fp8_test", 888, "fp8 inputs with bf16 or fp32 results",
            (_types("fp8bf16", "fp8fp32"), _WIDE_FP8, _ROWS_OF_V)),
    Profile("all", -1, "everything", ()),
)  # fmt: skip
PROFILES: Mapping[str, Profile] = {known.name: known for known in _ALL}
RECEIPTS: Mapping[int, Profile] = {known.receipt: known for known in _ALL if known.receipt >= 0}


def _pools(profiles: list[Profile]) -> dict[str, str]:
    """Pools by the names of profiles, and by receipts, each with a sentence."""
    return {known.name: known.summary for known in profiles} | {
        str(known.receipt): f"{known.name}, by its receipt" for known in profiles if known.receipt >= 0
    }


POOLS = _pools([known for known in _ALL if _BACKWARD_ONLY not in known.demands])
BACKWARD_POOLS = _pools(list(_ALL))  # those of the forward pass alone say so


def violation(rule: str, profile: Profile, label: str, inst: Instance) -> Violation:
    """Says which demand of a profile a kernel does not meet, and which profiles have it."""
    receipt = f" (receipt {profile.receipt})" if profile.receipt >= 0 else ""
    others = ", ".join(known.name for known in _ALL if known.allows(inst))
    return Violation(
        rule, f"{label}: the profile {profile.name}{receipt} is for {profile.unmet(inst)}", f"use {others}"
    )


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
