"""Profiles and receipts: each takes what it is for and leaves the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.backends.hip.attention.ck_tile.features import proposals
from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.backends.hip.attention.ck_tile.profiles import PROFILES, RECEIPTS, profile
from tilewright.errors import UnknownNameError

FP16 = Instance("gfx942", pipeline="qr_async")

# Profile, receipt, what it allows and what it does not.
TABLE: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    ("ck_default", 0, {}, {"data_type": "fp32"}),
    ("ck_extended", 1, {}, {"data_type": "fp32"}),
    ("flash_fwd", 2, {"bias": "alibi"}, {"bias": "bias"}),
    ("flash_fwd", 2, {"family": "fwd_pagedkv"}, {"family": "batch_prefill"}),
    ("flash_fwd", 2, {}, {"sink": True}),
    ("flash_bwd", 3, {"family": "bwd_dq_dk_dv"}, {}),
    ("pytorch", 4, {"bias": "bias"}, {"bias": "alibi"}),
    ("pytorch", 4, {}, {"logits": True}),
    ("pytorch", 4, {}, {"data_type": "fp8bf16"}),
    ("aiter_batch", 100, {}, {"mode": "group"}),
    ("aiter_batch", 100, {"data_type": "fp8bf16"}, {"data_type": "fp8bf16", "hdim_q": 64}),
    ("aiter_group", 200, {"mode": "group"}, {}),
    ("aiter_bwd_batch", 300, {"family": "bwd_dot_do_o"}, {"family": "bwd_dot_do_o", "mode": "group"}),
    ("aiter_bwd_group", 400, {"family": "bwd_dot_do_o", "mode": "group"}, {"family": "bwd_dot_do_o"}),
    ("aiter_cpp", 600, {"mode": "group"}, {"data_type": "fp8fp32"}),
    ("fp32_all", 800, {"data_type": "fp32"}, {"data_type": "fp32", "logits": True}),
    ("fp32_min", 801, {"data_type": "fp32", "hdim_q": 48}, {"data_type": "fp32", "lse": True}),
    ("fp8_test", 888, {"data_type": "fp8fp32"}, {"data_type": "fp8"}),
    ("all", -1, {"data_type": "fp32"}, {}),
]


@pytest.mark.parametrize(
    ("name", "receipt", "good", "bad"), TABLE, ids=[f"{one[0]}-{i}" for i, one in enumerate(TABLE)]
)
def test_profiles(name: str, receipt: int, good: dict[str, Any], bad: dict[str, Any]) -> None:
    one = profile(name)
    assert one.receipt == receipt
    assert one.allows(replace(FP16, **good))
    if bad or name != "all":
        assert not one.allows(replace(FP16, **bad))
    if receipt >= 0:
        assert profile(receipt) is one
        assert profile(str(receipt)) is one


def test_every_profile_is_tried() -> None:
    assert {one[0] for one in TABLE} == set(PROFILES)
    assert sorted(RECEIPTS) == [0, 1, 2, 3, 4, 100, 200, 300, 400, 600, 800, 801, 888]


def test_an_unknown_profile() -> None:
    with pytest.raises(UnknownNameError, match="flash_fwd"):
        profile("flash_fwdd")
    with pytest.raises(UnknownNameError):
        profile(7)


def found(receipt: int = 0, **change: Any) -> set[tuple[str, str]]:
    made = proposals(replace(FP16, **change), receipt)
    return {(one.pipeline, "".join(str(int(pad)) for pad in one.padding)) for one in made}


ASYNC = {("qr_async", "1011"), ("qr_async", "1111")}
# What is computed, and the pipelines and paddings the dispatcher has for it.
FEATURES: list[tuple[str, dict[str, Any], set[tuple[str, str]]]] = [
    ("F1", {"logits": True, "bias": "alibi"}, set()),
    ("F2", {"mode": "group"}, {("qr_async", "1111")}),
    ("F3", {"hdim_q": 256, "hdim_v": 256}, {("qr", "0000"), ("qr", "1100"), ("qr", "1111")}),
    ("F4", {"bias": "bias"}, {("qr", "0000"), ("qr", "1111")}),
    ("F4", {"bias": "alibi"}, ASYNC),
    ("F6", {"arch": "gfx950", "hdim_q": 64, "hdim_v": 64, "lse": True},
     ASYNC | {("qr_async_trload", "0000"), ("qr_async_trload", "0011")}),
    ("F7", {"arch": "gfx950", "logits": True}, ASYNC | {("v3", "1100")}),
    ("F8", {"data_type": "fp8bf16"}, ASYNC),
    ("F8", {"data_type": "fp8bf16", "hdim_q": 64, "hdim_v": 64}, {("qr", "1011"), ("qr", "1111")}),
    ("F8", {"data_type": "fp8bf16", "lse": True}, set()),
    ("F9", {"data_type": "fp32"}, {("qr", "0000"), ("qr", "0100"), ("qr", "1111")}),
    ("F10", {"family": "fwd_splitkv", "lse": True},
     {("qr", "0100"), ("qr", "1000"), ("qr", "1100"), ("qr", "1111")}),
    ("F10", {"family": "fwd_splitkv", "lse": True, "mask": "generic"}, set()),
    ("F10", {"family": "fwd_splitkv", "data_type": "fp8", "fp8_static_quant": True}, {("qr", "0000"), ("qr", "1100")}),
    ("F11", {"family": "fwd_splitkv_combine", "mode": "group"},
     {("splitkv_combine", "1110"), ("splitkv_combine", "1111")}),
    ("F12", {"family": "fwd_pagedkv", "paged_kv": True}, {("qr_pagedkv", "1000"), ("qr_pagedkv", "1100")}),
    ("F12", {"family": "fwd_pagedkv", "paged_kv": True, "lse": True}, set()),
    ("F13", {"family": "fwd_appendkv"}, {("appendkv", "0100"), ("appendkv", "1111")}),
    ("F13", {"family": "fwd_appendkv", "rope": "half"}, {("appendkv", "0110"), ("appendkv", "1111")}),
    ("F14", {"family": "batch_prefill", "mode": "group", "kv_memory_layout": "linear"}, {("qr_async", "1111")}),
    ("F14", {"family": "batch_prefill", "mode": "group"}, set()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "change", "expected"), FEATURES, ids=[f"{one[0]}-{i}" for i, one in enumerate(FEATURES)]
)
def test_pipelines_and_paddings(number: str, change: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert found(**change) == expected, number


def test_the_extended_receipt_adds_qr() -> None:
    assert found(1) - found(0) == {("qr", "1111")}  # F5
