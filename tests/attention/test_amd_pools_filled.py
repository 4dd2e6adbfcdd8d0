"""No pool by the name of a profile is empty where the dispatcher has kernels, and one that is says by which rule."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.codegen import collect, demand_some
from tilewright.errors import RequestError
from tilewright.ops.attention import AttentionSignature, legality, pools
from tilewright.ops.base import KernelSpec

CDNA = ("gfx90a", "gfx942", "gfx950")
FP8 = {"gfx942": "fp8_e4m3fnuz", "gfx950": "fp8_e4m3"}
HEADS = ("32", "64", "96", "128", "160", "192x128", "192", "256")
FORWARD = ("ck_default", "ck_extended", "flash_fwd", "pytorch", "aiter_batch", "aiter_group", "aiter_cpp", "all")


def pipelines(pool: str, arch: str, datatype: str, heads: str, features: str) -> set[str]:
    """Of the legal kernels."""
    proposed = pools.proposals(pool, arch, datatypes=(datatype,), heads=(heads,), features=(features,))
    return {spec.schedule.pipeline for spec in proposed if legality.is_legal(spec)}


@pytest.mark.parametrize("datatype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", CDNA)
@pytest.mark.parametrize("pool", FORWARD)
def test_plain_and_windowed_forward_is_there_for_every_head_size(pool: str, arch: str, datatype: str) -> None:
    for heads in HEADS:
        for features in ("plain", "window"):
            packed = f"varlen+{features}" if pool == "aiter_group" and features != "plain" else features
            words = "varlen" if pool == "aiter_group" and features == "plain" else packed
            expected = "qr" if heads == "256" else "qr_async"
            assert expected in pipelines(pool, arch, datatype, heads, words), (heads, words)


@pytest.mark.parametrize("arch", CDNA)
@pytest.mark.parametrize("features", ["alibi", "softcap", "bias", "lse", "paged"])
def test_features_of_the_usual_head_size_are_there(features: str, arch: str) -> None:
    assert pipelines("ck_default", arch, "bf16", "128", features)


@pytest.mark.parametrize("arch", CDNA)
@pytest.mark.parametrize("pool", ["fp32_all", "800", "fp32_min", "801"])
def test_fp32_is_of_our_own(pool: str, arch: str) -> None:
    for heads in ("48", "128") if pool in ("fp32_min", "801") else ("32", "48", "64", "96x128", "128", "192", "256"):
        assert pipelines(pool, arch, "fp32", heads, "plain") == {"tiled"}, heads


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("pool", ["fp8_test", "888", "aiter_batch", "ck_default"])
def test_fp8_goes_through_qr(pool: str, arch: str) -> None:
    for heads in ("128", "192x128"):
        for features in ("plain", "window"):
            assert "qr" in pipelines(pool, arch, FP8[arch], heads, features), (heads, features)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_where_ck_tile_does_not_multiply_a_profile_has_kernels_of_our_own(arch: str) -> None:
    for heads in ("64", "128"):
        assert pipelines("flash_fwd", arch, "bf16", heads, "window") == {"tiled"}


@pytest.mark.parametrize("arch", ["gfx908", "gfx1200", "gfx1250"])
def test_archs_the_dispatcher_does_not_know_have_kernels_of_our_own_where_no_axis_is_named(arch: str) -> None:
    for pool in ("ck_default", "flash_fwd", "aiter_group"):
        specs = collect("attention", arch, pool=pool).specs
        assert {spec.signature.dtype_q for spec in specs} == {"fp16", "bf16"}
        assert {spec.schedule.pipeline for spec in specs if spec.signature.family == "forward"} == {"tiled"}


@pytest.mark.parametrize(("arch", "pool"), [("gfx90a", "fp8_test"), ("gfx1100", "fp32_all"), ("gfx908", "801")])
def test_a_pool_of_types_that_an_arch_has_not_says_so(arch: str, pool: str) -> None:
    with pytest.raises(RequestError, match=arch) as said:
        collect("attention", arch, pool=pool)
    assert said.value.rule == "pool-empty"
    assert "is for kernels of fp" in said.value.message
    assert "ck_default" in said.value.remedy


def test_a_filter_that_leaves_nothing_says_which_rule_emptied_the_pool() -> None:
    wide: dict[str, Any] = {"expression": "c.tile_n0 == 384", "axes": {"heads": ("256",)}}
    with pytest.raises(RequestError) as said:
        demand_some(collect("attention", "gfx942", pool="flash_fwd", **wide))
    assert "did not pass the filter" in said.value.message
    assert " broke amd-attention-" in said.value.message
    assert "widen the filter" not in said.value.remedy


def test_copies_past_the_registers_stay_within_what_they_address() -> None:
    """Executed, 64x128x64x256 of three buffers of 36 KiB gave NaN: its copies wrap at 64 KiB."""
    signature = AttentionSignature("forward", "bf16", "bf16", "bf16", 192, 192)
    tall = CkTileAttentionSchedule("qr_async", (64, 128, 64, 256, 64, 192), (4, 1, 1), (16, 16, 16), block_per_cu=1)
    said = legality.check(KernelSpec("attention", signature, tall, "gfx950"))
    assert [violation.rule for violation in said] == ["amd-attention-lds"]
    through_registers = replace(tall, pipeline="qr", tile=(64, 128, 64, 256, 64, 192))
    assert not legality.check(KernelSpec("attention", signature, through_registers, "gfx950"))


WORDS = ("plain", "window", "lse", "softcap", "alibi", "varlen+window", "varlen+lse", "bias", "paged", "dropout")


@pytest.mark.parametrize("family", ["forward", "split", "combine"])
@pytest.mark.parametrize(("pool", "arch"), [("ck_extended", "gfx90a"), ("all", "gfx942"), ("full", "gfx950")])
def test_what_is_legal_is_told_quickly_as_the_rules_have_it(pool: str, arch: str, family: str) -> None:
    rng = random.Random(f"{pool} {arch} {family}")
    axes = {
        "features": WORDS,
        "datatypes": ("fp16", "bf16"),
        "heads": ("192" if pool == "full" else "64", "128"),
        "families": (family,),
    }
    proposed = list(pools.proposals(pool, arch, **axes))
    legal = {spec: legality.is_legal(spec) for spec in proposed}  # all of them, in their order, as commands ask
    for spec in rng.sample(proposed, min(150, len(proposed))):
        assert legal[spec] == (not legality.check(spec)), spec.name
    assert any(isinstance(spec.schedule, CkTileAttentionSchedule) for spec in proposed)


@pytest.mark.parametrize(
    ("pool", "heads", "datatype"), [("800", "128", "fp32"), ("801", "48", "fp32"), ("aiter_group", "128", "fp16")]
)
def test_a_pool_that_is_asked_for_heads_alone_has_its_own_types_and_features(
    pool: str, heads: str, datatype: str
) -> None:
    """The usual fp16 in padded batches is not what these are for."""
    held = [spec.signature for spec in pools.proposals(pool, "gfx942", heads=(heads,)) if legality.is_legal(spec)]
    assert datatype in {signature.dtype_q for signature in held}
    assert {signature.varlen for signature in held} == {pool == "aiter_group"} or pool == "800"
    with pytest.raises(RequestError) as caught:
        list(pools.proposals("800", "gfx942", heads=(heads,), datatypes=("fp16",)))
    assert caught.value.rule == "pool-empty"
