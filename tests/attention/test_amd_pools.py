"""What pools propose of attention on AMD GPUs, what is legal of it, and how the dispatcher would choose."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.backends.hip.attention.ck_tile.profiles import PROFILES
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule, computed, instance, route
from tilewright.backends.hip.attention.ck_tile.select import first_fit, seqtune
from tilewright.dispatch.registry import Registry
from tilewright.errors import UnknownNameError
from tilewright.ops import op
from tilewright.ops.attention import AttentionProblem, AttentionSignature, legality, pools
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.attention.spec import normalized
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

CDNA = ("gfx90a", "gfx942", "gfx950")
PLAIN = AttentionSignature("forward", "fp16", "fp16", "fp16")
PAGES: dict[str, Any] = {"pages": "strided", "page_lookup": "table"}
SIGNATURES = [
    PLAIN,
    replace(PLAIN, mask="window", return_lse=True),
    replace(PLAIN, dtype_q="bf16", dtype_kv="bf16", dtype_out="bf16", bias="tensor", dtype_aux="bf16"),
    replace(PLAIN, varlen=True, bias="alibi"),
    replace(PLAIN, softcap=True),
    replace(PLAIN, **PAGES),
    replace(PLAIN, pages="strided", page_lookup="indices", varlen=True),
    normalized(replace(PLAIN, family="split")),
    normalized(replace(PLAIN, family="split", **PAGES)),
    normalized(replace(PLAIN, family="split", bias="tensor", dtype_aux="fp16")),
    normalized(replace(PLAIN, family="combine", return_lse=True)),
    normalized(replace(PLAIN, family="append", rotary="half", dtype_aux="fp16")),
    normalized(replace(PLAIN, family="append", **PAGES)),
]
HEADS = ((32, 32), (64, 64), (96, 96), (128, 128), (160, 160), (192, 128), (192, 192), (256, 256))


def specs(signature: AttentionSignature, name: str, pool: str = "default") -> list[KernelSpec]:
    made = AMD.schedules(pool, signature, arch(name))
    return [KernelSpec("attention", signature, one, name) for one in made]


@pytest.mark.parametrize("name", CDNA)
@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda one: one.label())
def test_every_head_size_has_a_kernel(signature: AttentionSignature, name: str) -> None:
    for head_dim, head_dim_v in HEADS:
        one = normalized(replace(signature, head_dim=head_dim, head_dim_v=head_dim_v))
        if one.bias != "none" and (head_dim, head_dim_v) == (192, 128):
            continue  # CK Tile has none
        legal = [spec for spec in specs(one, name) if not legality.check(spec)]
        assert any(isinstance(spec.schedule, CkTileAttentionSchedule) for spec in legal), (head_dim, head_dim_v)
        for spec in legal:
            assert op("attention").spec_from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize("name", ["gfx908", "gfx1100", "gfx1200", "gfx1201", "gfx1250"])
def test_where_ck_tile_cannot_multiply_there_are_kernels_of_our_own(name: str) -> None:
    assert {spec.schedule.pipeline for spec in specs(PLAIN, name)} == {"tiled"}
    forced = replace(specs(PLAIN, "gfx942")[0], arch=name)
    assert "amd-attention-arch" in [one.rule for one in legality.check(forced)]


# What a signature has that CK Tile has not, and the rule that says so.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("amd-attention-dtype", {"dtype_kv": "fp8_e4m3"}),
    ("amd-attention-dtype", {"dtype_out": "fp32"}),
    ("amd-attention-dtype", {"dtype_q": "fp8_e4m3", "dtype_kv": "fp8_e4m3"}),  # the encoding of gfx950
    ("amd-attention-mask", {"masked": True}),
    ("amd-attention-aux", {"bias": "tensor"}),
    ("amd-attention-packed-bias", {"bias": "tensor", "dtype_aux": "fp16", "varlen": True}),
    ("amd-attention-pages", {"pages": "vectorised", "page_lookup": "table"}),
    ("amd-attention-pages", {"family": "split", "pages": "strided", "page_lookup": "indices"}),
    ("amd-attention-pages", {"pages": "strided", "page_lookup": "indices"}),
    ("amd-attention-dropout", {"dropout": True, "pages": "strided", "page_lookup": "table"}),
    ("amd-attention-headers", {"sink": True}),
    ("amd-attention-headers", {"mask": "generic"}),
]


@pytest.mark.parametrize(("rule", "change"), REFUSED, ids=[f"{one[0][14:]}-{i}" for i, one in enumerate(REFUSED)])
def test_what_ck_tile_does_not_compute(rule: str, change: dict[str, Any]) -> None:
    schedule = specs(PLAIN, "gfx942")[0].schedule
    found = legality.check(KernelSpec("attention", normalized(replace(PLAIN, **change)), schedule, "gfx942"))
    assert rule in [one.rule for one in found]
    assert all(one.remedy for one in found)
    floor = KernelSpec(
        "attention", normalized(replace(PLAIN, **change)), AMD.fallback_schedule(PLAIN, arch("gfx942")), "gfx942"
    )
    assert not legality.check(floor)


OF_SCHEDULES: list[tuple[str, AttentionSignature, dict[str, Any]]] = [
    ("amd-attention-n1", replace(PLAIN, head_dim_v=256), {}),
    ("amd-attention-whole-heads", replace(PLAIN, head_dim_v=96), {"pipeline": "qr", "pad": (True, True, False, False)}),
    ("amd-attention-whole-heads", replace(PLAIN, head_dim=96), {"pipeline": "qr_async"}),
    ("amd-attention-whole-heads", replace(PLAIN, head_dim=96), {"pipeline": "qr", "pad": (True, True, False, True)}),
    ("amd-attention-packed-pads", replace(PLAIN, varlen=True), {"pipeline": "qr", "pad": (True, False, True, True)}),
    ("amd-attention-qs-packed", replace(PLAIN, varlen=True), {"pipeline": "qs"}),
    ("amd-attention-paged-pads", replace(PLAIN, **PAGES), {"pipeline": "qr_pagedkv", "pad": (True, False, True, True)}),
]


@pytest.mark.parametrize(("rule", "signature", "change"), OF_SCHEDULES, ids=[one[0][14:] for one in OF_SCHEDULES])
def test_schedules_that_do_not_go_with_a_signature(
    rule: str, signature: AttentionSignature, change: dict[str, Any]
) -> None:
    schedule = replace(specs(PLAIN, "gfx942")[0].schedule, **change)
    found = legality.check(KernelSpec("attention", signature, schedule, "gfx942"))
    assert rule in [one.rule for one in found]


@pytest.mark.parametrize("pool", [one for one in AMD.POOLS if not one.isdigit()])
def test_pools_of_profiles_hold_what_their_profile_allows(pool: str) -> None:
    found = list(islice(pools.proposals(pool, "gfx942"), 0, 4000, 97))
    for spec in found:
        inst = computed(spec.signature, "gfx942")
        if (inst.data_type, inst.hdim_q) == ("fp32", 64):
            inst = replace(inst, hdim_q=48, hdim_v=48)  # heads of 48 are in our kernels of 64
        if isinstance(spec.schedule, CkTileAttentionSchedule) and pool != "fp32_min":
            inst = instance(spec.signature, spec.schedule, "gfx942")
        assert PROFILES[pool].allows(inst), spec.name
    if pool in ("ck_default", "flash_fwd", "pytorch", "aiter_batch", "aiter_group", "aiter_cpp"):
        assert any(not legality.check(spec) for spec in found)


@pytest.mark.parametrize(("pool", "receipt"), [("ck_default", 0), ("flash_fwd", 2), ("pytorch", 4), ("fp8_test", 888)])
def test_a_pool_goes_by_its_receipt_too(pool: str, receipt: int) -> None:
    found = [list(islice(pools.proposals(name, "gfx942"), 0, 3000, 61)) for name in (pool, str(receipt))]
    assert found[0] == found[1] != []


@pytest.mark.parametrize("pool", ["fp32_all", "fp32_min"])
def test_what_these_headers_lack_is_refused_with_that_reason_and_is_of_our_own(pool: str) -> None:
    found = list(islice(pools.proposals(pool, "gfx942"), 0, 4000, 61))
    of_theirs = [spec for spec in found if isinstance(spec.schedule, CkTileAttentionSchedule)]
    assert of_theirs
    for spec in of_theirs:
        assert any(
            one.rule == "amd-attention-headers" and "fp32" in one.message and "mid-2025" in one.message
            for one in legality.check(spec)
        ), spec.name
    ours = pools.proposals(pool, "gfx942", datatypes=("fp32",), heads=("128",))
    assert {spec.schedule.pipeline for spec in ours if not legality.check(spec)} == {"tiled"}


def test_a_pool_of_a_profile_has_the_dispatchers_tiles() -> None:
    """119 blocks of qr_async at head size 64 with two paddings each, less those that were seen to spill, each as these
    headers have it; what they lack says why."""
    signature = replace(PLAIN, head_dim=64, head_dim_v=64)
    found = specs(signature, "gfx942", "ck_default")
    assert 2 * 90 < len(found) <= 2 * 119
    legal = [spec for spec in found if not legality.check(spec)]
    assert 0 < len(legal) < len(found)
    reasons = {one.rule for spec in found for one in legality.check(spec)}
    assert {"amd-attention-registers", "amd-attention-async-steps"} <= reasons


@pytest.mark.parametrize("heads", HEADS)
def test_every_kernel_of_the_default_pool_serves_heads_of_its_signature(heads: tuple[int, int]) -> None:
    """A kernel without edge code of heads under a larger tile would serve nothing at all."""
    for one in SIGNATURES:
        signature = normalized(replace(one, head_dim=heads[0], head_dim_v=heads[1]))
        for spec in specs(signature, "gfx942"):
            if legality.check(spec) or spec.schedule.pipeline == "loops":
                continue
            names = ("family", "dtype_q", "dtype_out", "bias", "softcap", "return_lse", "varlen", "pages",
                     "page_lookup",
                     "rotary")  # fmt: skip
            has = {name: getattr(signature, name) for name in (*names, "dtype_aux", "head_dim", "head_dim_v")}
            size: dict[str, Any] = {"num_splits": 3, "seqlen_q": 384, "seqlen_k": 768, "seqlens_k": True}
            size["window_right"] = 0 if signature.mask == "window" else -1
            size["page_size"] = {"none": 0, "table": 384, "indices": 1}[signature.page_lookup]
            if has["family"] == "forward" and signature.page_lookup == "none":
                size["seqlens_k"] = False
            problem = AttentionProblem(batch=1, heads_q=2, **{**has, **size})
            assert problem.signature == signature
            assert not legality.supports(spec, problem), spec.name


def test_every_route_is_reached() -> None:
    assert {route(one) for one in SIGNATURES} == {"forward", "paged", "prefill", "split", "combine", "append"}


def _tiles(*rows: int) -> list[KernelSpec]:
    base = specs(PLAIN, "gfx942")[0]
    return [
        replace(base, schedule=replace(base.schedule, tile=(m0, *base.schedule.tile[1:]), warp_grid=(m0 // 32, 1, 1)))
        for m0 in rows
    ]


@pytest.mark.parametrize(
    ("rows", "blocks", "chosen"),
    [
        (128, (64, 128, 256), 128),  # one whole block, though its test wants 64
        (100, (64, 128, 256), 64),
        (256, (128, 192, 256), 256),
        (384, (128, 192, 256), 256),  # the largest comes before whole ones
        (300, (128, 192), 192),
    ],
)
def test_seqtune(rows: int, blocks: tuple[int, ...], chosen: int) -> None:
    problem = AttentionProblem(1, 2, rows, 300, 128, dtype_q="fp16")
    found = seqtune(_tiles(*blocks), problem)
    assert found is not None
    assert found.schedule.tile[0] == chosen


def test_first_fit_takes_the_smallest() -> None:
    problem = AttentionProblem(1, 2, 300, 300, 128, dtype_q="fp16")
    found = first_fit(_tiles(256, 128, 192), problem)
    assert found is not None
    assert found.schedule.tile[0] == 128
    loops = [replace(_tiles(128)[0], schedule=LoopsSchedule())]
    assert first_fit(loops, problem) is None
    assert seqtune(loops, problem) is None


@pytest.mark.parametrize("rule", ["seqtune", "first_fit"])
def test_dispatch_asks_the_rule_that_is_named(rule: str) -> None:
    """It stands before estimates, `explain` says which chose and why others did not, and the line repeats it."""
    problem = AttentionProblem(1, 2, 300, 300, 64, dtype_q="fp16")
    of_pool = specs(problem.signature, "gfx942", "full")
    tiled = (one for one in of_pool if isinstance(one.schedule, CkTileAttentionSchedule))
    by_rows = {one.schedule.tile[0]: one for one in tiled if not legality.check(one) + legality.supports(one, problem)}
    kernels = [by_rows[rows] for rows in (128, 64, 32)]
    registry, wanted = Registry("gfx942", kernels), by_rows[{"seqtune": 64, "first_fit": 32}[rule]]
    with settings.override(rule=rule):
        chosen = registry.select(problem)
        told = registry.explain(problem)
    assert chosen.stages[0].spec == wanted
    assert rule in told.decided
    assert f"--rule {rule}" in told.replay
    assert sum(f"the rule {rule} puts it behind" in one.reasons for one in told.candidates) == 2
    usual = registry.select(problem)
    assert "estimate" in usual.reason


@pytest.mark.parametrize(("splits", "parts"), [(3, 8), (9, 16), (100, 128)])
def test_rules_take_the_smallest_kernel_that_combines(splits: int, parts: int) -> None:
    problem = AttentionProblem(1, 2, 300, 0, 64, family="combine", dtype_q="fp32", dtype_out="fp16", num_splits=splits)
    with settings.override(rule="seqtune"):
        assert 1 << Registry("gfx942").select(problem).stages[0].spec.schedule.max_splits_log2 == parts


def test_a_rule_says_nothing_where_no_block_serves() -> None:
    """Then the choice falls as it does without one."""
    problem = AttentionProblem(1, 2, 300, 300, 128, dtype_q="fp32")
    with settings.override(rule="seqtune"):
        chosen = Registry("gfx942").select(problem).stages[-1]
        assert chosen.spec.schedule.pipeline == "tiled"
        assert "the rule seqtune has nothing to say of these kernels" in chosen.reason
        other = GemmProblem(64, 64, 64)
        assert Registry("generic").select(other) == _without_rule(other)


def _without_rule(problem: Any) -> Any:
    with settings.override(rule=""):
        return Registry("generic").select(problem)


def test_a_rule_nobody_has_is_an_error() -> None:
    with settings.override(rule="seqtunes"), pytest.raises(UnknownNameError, match="seqtune"):
        Registry("gfx942").select(AttentionProblem(1, 2, 300, 300, 128, dtype_q="fp16"))
