"""Every rule of CK Tile's attention has a kernel that breaks it, and says what would work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.arch import all_archs, arch
from tilewright.backends.hip.attention.ck_tile import headers as amd_headers
from tilewright.backends.hip.attention.ck_tile import rules as amd_rules
from tilewright.backends.hip.attention.ck_tile.instance import FAMILIES, Instance, canonical

ASYNC = Instance(
    "gfx942", pipeline="qr_async", tile=(128, 128, 32, 128, 32, 128), wave=(4, 1, 1, 4, 1, 1, 1, 1, 1), block_per_cu=1
)
QR = replace(ASYNC, pipeline="qr")
COMBINE = replace(
    QR, family="fwd_splitkv_combine", pipeline="splitkv_combine", tile=(32, 128, 32, 32, 32, 128), max_splits_log2=3
)
APPEND = replace(QR, family="fwd_appendkv", pipeline="appendkv", tile=(64, 64, 128, 128, 32, 128))
PAGED = replace(QR, family="fwd_pagedkv", pipeline="qr_pagedkv", paged_kv=True)
SPLIT = replace(QR, family="fwd_splitkv", tile=(64, 128, 32, 128, 32, 128), warp=(16, 16, 16, 16, 16, 16, 16, 16, 16))
PREFILL = replace(
    ASYNC, family="batch_prefill", mode="group", paged_kv=True, kv_memory_layout="linear", kv_lookup_table="sglang"
)
NEWEST = replace(ASYNC, arch="gfx950", pipeline="qr_async_trload")


@pytest.mark.parametrize("one", [ASYNC, QR, COMBINE, APPEND, PAGED, SPLIT, PREFILL], ids=lambda one: one.family)
def test_what_is_right_breaks_nothing(one: Instance) -> None:
    facts = arch(one.arch)
    assert not [*amd_rules.violations(one, facts), *amd_headers.violations(one, facts)]


# The dispatcher's number, the rule's name here, what it starts from and what breaks it.
RULES: list[tuple[str, str, Instance, dict[str, Any]]] = [
    ("V1", "amd-attention-arch", QR, {"arch": "gfx908"}),
    ("V2", "amd-attention-family", QR, {"family": "fwd_magic"}),
    ("V3", "amd-attention-dtype", QR, {"arch": "gfx90a", "data_type": "fp8bf16"}),
    ("V4", "amd-attention-bwd-dtype", QR, {"family": "bwd_dq_dk_dv", "data_type": "fp8"}),
    ("V5", "amd-attention-dtype", QR, {"data_type": "int4"}),
    ("V6", "amd-attention-pipeline", QR, {"pipeline": "qr_magic"}),
    ("V7", "amd-attention-trload", QR, {"pipeline": "v3"}),
    ("V8", "amd-attention-trload", QR, {"pipeline": "qr_async_trload"}),
    ("V9", "amd-attention-head-size", QR, {"hdim_q": 100}),
    ("V9", "amd-attention-head-size", QR, {"hdim_v": 4}),
    ("V10", "amd-attention-192x128", QR, {"hdim_q": 192, "bias": "bias"}),
    ("V10", "amd-attention-192x128", QR, {"hdim_q": 192, "dropout": True}),
    ("V11", "amd-attention-softcap-bias", QR, {"logits": True, "bias": "alibi"}),
    ("V12", "amd-attention-trload-heads", NEWEST, {"hdim_q": 96}),
    ("V13", "amd-attention-lengths", QR, {"tile": (128, 128, 32)}),
    ("V13", "amd-attention-lengths", QR, {"wave": (4, 1, 1)}),
    ("V13", "amd-attention-lengths", QR, {"warp": (32, 32, 16)}),
    ("V14", "amd-attention-256-eights", QR, {"hdim_q": 256, "tile": (128, 32, 32, 128, 32, 256)}),
    ("V15", "amd-attention-occupancy", QR, {"block_per_cu": 0}),
    ("V16", "amd-attention-wave-groups", QR, {"num_wave_groups": 0}),
    ("V17", "amd-attention-v-rows", PREFILL, {"vlayout": "c"}),
    ("V18", "amd-attention-prefill-pages", PREFILL, {"paged_kv": False}),
    ("V19", "amd-attention-page-size", PREFILL, {"page_size": 24}),
    ("V20", "amd-attention-prefill-packed", PREFILL, {"mode": "batch"}),
    ("V21", "amd-attention-prefill-pipeline", PREFILL, {"pipeline": "qr"}),
    ("V22", "amd-attention-append-batch", APPEND, {"mode": "group"}),
    ("V23", "amd-attention-append-pipeline", APPEND, {"pipeline": "qr"}),
    ("V24", "amd-attention-v-rows", APPEND, {"vlayout": "c"}),
    ("V25", "amd-attention-mode", COMBINE, {"mode": "both"}),
    ("V26", "amd-attention-combine-n1", COMBINE, {"tile": (32, 128, 32, 64, 32, 128)}),
    ("V27", "amd-attention-combine-heads", COMBINE, {"hdim_v": 24}),
    ("V28", "amd-attention-paged-pipeline", PAGED, {"pipeline": "qr"}),
    ("V29", "amd-attention-paged-pages", PAGED, {"paged_kv": False}),
    ("V30", "amd-attention-v-rows", PAGED, {"vlayout": "c"}),
    ("V31", "amd-attention-split-pipeline", SPLIT, {"pipeline": "qr_async"}),
    ("V32", "amd-attention-v-rows", SPLIT, {"vlayout": "c"}),
    ("V33", "amd-attention-v-rows", QR, {"vlayout": "c"}),
]


@pytest.mark.parametrize(
    ("number", "rule", "good", "change"), RULES, ids=[f"{one[0]}-{i}" for i, one in enumerate(RULES)]
)
def test_each_rule_of_the_dispatcher(number: str, rule: str, good: Instance, change: dict[str, Any]) -> None:
    bad = replace(good, **change)
    found = {one.rule: one for one in amd_rules.violations(bad, arch(bad.arch))}
    assert rule in found, (number, sorted(found))
    assert found[rule].message
    assert found[rule].remedy
    if rule not in ("amd-attention-arch", "amd-attention-trload-heads"):
        assert rule not in {one.rule for one in amd_rules.violations(good, arch(good.arch))}


def test_every_number_is_tried() -> None:
    tried = {one[0] for one in RULES}
    assert tried == {f"V{number}" for number in range(1, 34)}
    named = {word for names in amd_rules.RULES for word in names.split()}
    assert named == tried


HEADS_OF_64: dict[str, Any] = {"hdim_q": 64, "hdim_v": 64, "block_per_cu": -1}
# What the headers of mid-2025 lack or assert.
HEADERS: list[tuple[str, Instance, dict[str, Any]]] = [
    ("amd-attention-headers", NEWEST, {}),
    ("amd-attention-headers", SPLIT, {"pipeline": "qr_nwarp_sshuffle"}),
    ("amd-attention-headers", QR, {"sink": True}),
    ("amd-attention-headers", QR, {"data_type": "fp32"}),
    ("amd-attention-headers", QR, {"data_type": "bf8"}),
    ("amd-attention-headers", ASYNC, {"data_type": "fp8bf16"}),
    ("amd-attention-headers", SPLIT, {"data_type": "fp8bf16"}),
    ("amd-attention-headers", QR, {"data_type": "fp8bf16", "bias": "bias"}),
    ("amd-attention-headers", QR, {"data_type": "fp8bf16", "dropout": True}),
    ("amd-attention-headers", QR, {"data_type": "fp8bf16", "qscale": "blockscale"}),
    ("amd-attention-warp-tile", QR, {"data_type": "fp8bf16"}),
    ("amd-attention-headers", PREFILL, {"page_size": 16}),
    ("amd-attention-headers", PREFILL, {"kv_memory_layout": "vectorized"}),
    ("amd-attention-headers", PREFILL, {"kv_lookup_table": "vllm"}),
    ("amd-attention-backward", QR, {"family": "bwd_dot_do_o"}),
    ("amd-attention-dropout", SPLIT, {"dropout": True}),
    ("amd-attention-dropout", QR, {"dropout": True, "pipeline": "qs"}),
    ("amd-attention-dropout", QR, {"dropout": True, "tile": (64, 16, 32, 128, 16, 128), "warp": (16,) * 9}),
    ("amd-attention-wave-grid", QR, {"wave": (2, 2, 1, 2, 2, 1, 1, 1, 1)}),
    ("amd-attention-warp-tile", QR, {"warp": (16, 16, 32, 16, 16, 32, 16, 16, 16)}),
    ("amd-attention-rows", QR, {"tile": (96, 128, 32, 128, 32, 128)}),
    ("amd-attention-threads", QR, {"wave": (32, 1, 1, 32, 1, 1, 1, 1, 1), "tile": (1024, 128, 32, 128, 32, 128)}),
    ("amd-attention-k0max", QR, {"hdim_q": 80, "tile": (128, 128, 16, 128, 32, 80)}),
    ("amd-attention-k0max", QR, {"tile": (128, 128, 32, 128, 32, 64)}),
    ("amd-attention-k0", QR, {"tile": (128, 128, 128, 128, 32, 128)}),
    ("amd-attention-k0", QR, {"tile": (128, 128, 96, 128, 32, 128)}),
    ("amd-attention-k1", QR, {"tile": (128, 128, 32, 128, 96, 128)}),
    ("amd-attention-n1", QR, {"tile": (128, 128, 32, 64, 32, 128)}),
    ("amd-attention-async-steps", ASYNC, {"tile": (128, 128, 64, 128, 32, 128)}),
    ("amd-attention-async-steps", ASYNC, {"tile": (128, 32, 32, 128, 32, 128)}),  # executed, it was wrong
    ("amd-attention-async-loads", ASYNC, {"tile": (16, 256, 32, 128, 32, 128), "wave": (1, 1, 1, 1, 1, 1, 1, 1, 1)}),
    ("amd-attention-async-pads", ASYNC, {"padding": (False, True, True, True)}),
    ("amd-attention-dealt", ASYNC, {"tile": (128, 32, 16, 128, 16, 128), "warp": (16,) * 9,
                                    "wave": (8, 1, 1, 8, 1, 1, 1, 1, 1)}),
    ("amd-attention-dealt", QR, {"hdim_v": 192, "tile": (128, 128, 32, 192, 32, 128)}),
    ("amd-attention-dealt", QR, {"hdim_q": 96, "hdim_v": 96, "tile": (256, 32, 32, 96, 32, 128),
                                 "wave": (8, 1, 1, 8, 1, 1, 1, 1, 1)}),  # does not compile: three neighbours
    ("amd-attention-dealt", QR, {"hdim_q": 192, "hdim_v": 192, "tile": (128, 64, 16, 192, 32, 192), "warp": (16,) * 9,
                                 "wave": (8, 1, 1, 8, 1, 1, 1, 1, 1)}),  # does not compile: loads of six elements
    ("amd-attention-dealt", QR, {"pipeline": "qs", "tile": (192, 128, 16, 128, 32, 128), "warp": (16,) * 9}),
    ("amd-attention-lds", ASYNC, {"tile": (128, 256, 64, 128, 64, 128)}),
    ("amd-attention-registers", ASYNC, {"block_per_cu": 2}),
    # Built, these three spilled (the second with pipeline qs).
    ("amd-attention-registers", QR, {**HEADS_OF_64, "tile": (128, 64, 32, 64, 32, 64), "bias": "bias"}),
    ("amd-attention-registers", QR, {**HEADS_OF_64, "tile": (32, 192, 16, 64, 32, 64),
                                     "wave": (2, 1, 1, 2, 1, 1, 1, 1, 1), "warp": (16,) * 9}),
    ("amd-attention-registers", ASYNC, {"hdim_q": 256, "hdim_v": 256, "tile": (128, 128, 32, 256, 32, 256),
                                        "block_per_cu": 1}),
    ("amd-attention-registers", QR, {"tile": (16, 128, 32, 128, 32, 128), "wave": (1,) * 9, "warp": (16,) * 9,
                                     "bias": "alibi", "mask": "generic", "block_per_cu": -1}),  # built, it spilled
    # Built, these three spilled too: two splits, and dropout with warp tiles of 16 rows.
    ("amd-attention-registers", SPLIT, {"tile": (128, 64, 16, 128, 32, 128), "wave": (4, 1, 1, 4, 1, 1, 1, 1, 1),
                                        "warp": (16,) * 9, "block_per_cu": -1}),
    ("amd-attention-registers", SPLIT, {"tile": (128, 256, 64, 128, 32, 128), "wave": (8, 1, 1, 8, 1, 1, 1, 1, 1),
                                        "warp": (16,) * 9, "block_per_cu": -1}),
    ("amd-attention-registers", QR, {"hdim_q": 96, "tile": (32, 192, 32, 128, 32, 96),
                                     "wave": (2, 1, 1, 2, 1, 1, 1, 1, 1), "warp": (16,) * 9, "dropout": True,
                                     "block_per_cu": -1}),
    # Built, these three spilled 114, 102 and 142 registers: fragments that are read ahead.
    ("amd-attention-registers", QR, {"pipeline": "qs", "hdim_q": 256, "hdim_v": 256, "warp": (16,) * 9,
                                     "tile": (128, 128, 16, 256, 32, 256), "block_per_cu": -1}),
    ("amd-attention-registers", ASYNC, {"tile": (16, 384, 16, 128, 16, 128), "wave": (1,) * 9, "warp": (16,) * 9,
                                        "bias": "bias", "mask": "top_left", "data_type": "bf16", "block_per_cu": -1}),
    ("amd-attention-registers", QR, {"tile": (16, 192, 16, 128, 32, 128), "wave": (1,) * 9, "warp": (16,) * 9,
                                     "mask": "top_left", "lse": True, "data_type": "bf16", "block_per_cu": -1}),
    # Built, these two had 120 and 8 bytes of scratch: pages of one slot, of which few waves know many.
    ("amd-attention-registers", PREFILL, {"tile": (32, 64, 32, 128, 32, 128), "wave": (1,) * 9, "bias": "alibi",
                                          "mask": "top_left", "lse": True, "data_type": "bf16", "block_per_cu": -1}),
    ("amd-attention-registers", PREFILL, {"tile": (64, 64, 32, 128, 32, 128), "wave": (2, 1, 1, 2, 1, 1, 1, 1, 1),
                                          "bias": "alibi", "mask": "top_left", "lse": True, "data_type": "bf16",
                                          "block_per_cu": -1}),
    # Built, it had 40 bytes: a split with ALiBi.
    ("amd-attention-registers", SPLIT, {"tile": (64, 128, 32, 128, 32, 128), "wave": (4, 1, 1, 4, 1, 1, 1, 1, 1),
                                        "warp": (16,) * 9, "bias": "alibi", "data_type": "bf16", "block_per_cu": -1}),
    ("amd-attention-splits", COMBINE, {"max_splits_log2": 8}),
    ("amd-attention-append-tile", APPEND, {"tile": (128, 64, 128, 128, 32, 128)}),
    ("amd-attention-append-tile", APPEND, {"hdim_q": 256}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "good", "change"), HEADERS, ids=[f"{one[0][14:]}-{i}" for i, one in enumerate(HEADERS)]
)
def test_what_the_headers_cannot_do(rule: str, good: Instance, change: dict[str, Any]) -> None:
    bad = replace(good, **change)
    found = {one.rule: one for one in amd_headers.violations(bad, arch(bad.arch))}
    assert rule in found, sorted(found)
    assert found[rule].message
    assert found[rule].remedy


def test_facts_of_the_five_archs() -> None:
    known = {one.name: lists for one in all_archs().values() if (lists := one.ck_tile_of("attention")) is not None}
    assert set(known) == {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
    assert "v3" in known["gfx950"]["pipelines"]
    assert "v3" not in known["gfx942"]["pipelines"]
    assert "qr_async" not in known["gfx1100"]["pipelines"]
    assert set(known["gfx1201"]["dtypes"]) == {"fp16", "bf16", "fp8", "fp8bf16"}


@pytest.mark.parametrize(
    ("kind", "word", "meant"),
    [
        ("mask", "causal", "top_left"), ("mask", "t", "top_left"), ("mask", "b", "bottom_right"),
        ("mask", "window_generic", "generic"), ("mask", "no_mask", "no"), ("bias", "elementwise", "bias"),
        ("rope", "half_rotated", "half"), ("qscale", "no_scale", "no"), ("vlayout", "row_major", "r"),
    ],
)  # fmt: skip
def test_aliases(kind: str, word: str, meant: str) -> None:
    assert canonical(kind, word) == meant
    assert canonical(kind, meant) == meant


BASE = Instance(
    "gfx950", pipeline="qr_async", tile=(128, 128, 32, 128, 32, 128), wave=(4, 1, 1, 4, 1, 1, 1, 1, 1), block_per_cu=-1
)
SPLIT16 = {"family": "fwd_splitkv", "pipeline": "qr", "warp": (16,) * 9, "lse": True}
NAMES: list[tuple[str, dict[str, Any]]] = [
    (
        "fmha_fwd_fp16_batch_h128_qr_async_t128x128x32x128x32x128_w32x32x16_pad1111_mask=top_left_bias=no_bpc=-1",
        {"mask": "top_left"},
    ),
    (
        "fmha_fwd_bf16_group_h192x128_qr_async_t128x128x32x128x32x192_w32x32x16_pad1111_mask=no_bias=alibi_lse=1_bpc=-1",
        {"data_type": "bf16", "mode": "group", "hdim_q": 192, "tile": (128, 128, 32, 128, 32, 192), "bias": "alibi",
         "lse": True},
    ),
    (
        "fmha_fwd_splitkv_fp16_batch_h128_qr_t64x128x32x128x32x128_w16x16x16_pad1100_mask=no_bias=no_lse=1_bpc=-1",
        {**SPLIT16, "tile": (64, 128, 32, 128, 32, 128), "padding": (True, True, False, False)},
    ),
    (
        "fmha_fwd_splitkv_fp16_group_h64_qr_t64x64x32x64x32x64_w16x16x16_pad1111_mask=top_left_bias=no_lse=1_pkv=1_bpc=-1",
        {**SPLIT16, "mode": "group", "hdim_q": 64, "hdim_v": 64, "tile": (64, 64, 32, 64, 32, 64), "mask": "top_left",
         "paged_kv": True},
    ),
    (
        "fmha_fwd_appendkv_fp16_batch_h128_appendkv_t64x64x128x128x32x128_w32x32x16_pad1111_mask=no_bias=no"
        "_rope=interleaved_bpc=-1",
        {"family": "fwd_appendkv", "pipeline": "appendkv", "tile": (64, 64, 128, 128, 32, 128), "rope": "inter"},
    ),
    (
        "fmha_batch_prefill_fp16_group_h128_qr_async_t64x128x64x128x64x128_w16x16x16_pad1111_mask=no_bias=no"
        "_pkv=1_ps=16_bpc=-1",
        {"family": "batch_prefill", "mode": "group", "tile": (64, 128, 64, 128, 64, 128), "warp": (16,) * 9,
         "paged_kv": True, "page_size": 16, "kv_lookup_table": "sglang"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), NAMES, ids=[str(i) for i in range(len(NAMES))])
def test_names_of_configurations(name: str, change: dict[str, Any]) -> None:
    assert replace(BASE, **change).config_name() == name


def test_the_run_time_identifier() -> None:
    one = replace(BASE, mask="top_left", block_per_cu=1, kv_lookup_table="sglang")
    assert one.identifier() == (
        "fmha_fwd_fp16_batch_vr_hq128_hv128_pqr_async_m1_b0_lse0_do0_qs0_rp0_pkv0_sq0_sk0_sink0_db0_sr0_det0_km0_kl1_ps1"
        "_t128x128x32x128x32x128_w04x1x1_w14x1x1_wt032x32x16_wt132x32x16_pads1111_tr0_bpc1_wg1_ms0_mq0_aq128_av128"
        "_r0_rc-1"
    )
    assert one.declaration() == "fmha_fwd_fp16_batch_dq128_dv128_r_qr_async"


@pytest.mark.parametrize("change", [{"logits": True}, {"arch": "gfx942"}])
def test_kernels_that_collide_there_do_not_here(change: dict[str, Any]) -> None:
    other = replace(BASE, **change)
    assert other.identifier() == BASE.identifier()
    assert other.key() != BASE.key()


def test_backward_families_are_known_by_name() -> None:
    assert len(FAMILIES) == 9
