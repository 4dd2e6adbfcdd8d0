"""Pools of attention's gradients by the names of CK Tile's profiles: what is in them, and why one is empty."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.backends.hip.attention.ck_tile.profiles import profile
from tilewright.backends.hip.attention_backward import KERNELS
from tilewright.backends.hip.attention_backward.ck_tile.dispatcher import instance
from tilewright.backends.hip.attention_backward.ck_tile.receipts import RECEIPTS, pool_profile
from tilewright.errors import RequestError
from tilewright.ops import op
from tilewright.ops.attention_backward import pools
from tilewright.ops.base import KernelSpec

OP = op("attention_backward")
KINDS = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
# Kernels of each kind that a profile has.  CK's generator of mid-2025 writes 7825 files for receipt 0 with simplified
# masks, one of which is the list of the others.
COUNTS: dict[str, tuple[int, int, int]] = {
    "ck_default": (48, 7680, 96),
    "flash_bwd": (48, 7680, 96),
    "pytorch": (48, 5760, 96),  # without ALiBi
    "aiter_bwd_batch": (32, 6144, 64),
    "aiter_bwd_group": (16, 1536, 32),
    "aiter_cpp": (48, 7680, 96),
    "fp32_all": (24, 3840, 48),  # none of them legal
    "fp32_min": (4, 64, 8),
    # By number, what the generator writes for a receipt: of a bias half, or three of four; of draws two of three; edges
    # of heads alike are half of them, sums in any order too.
    "2": (48, 7680 // 2 * 2 // 3 // 2, 96),
    "3": (48, 7680 // 2 // 2 // 2, 48),
    "4": (48, 7680 * 3 // 4 * 2 // 3 // 2 // 2, 48),
    "300": (32, 6144 * 2 // 3, 64),
    "400": (16, 1536 * 2 // 3, 32),
    "600": (48, 7680, 96),
    "800": (24, 3840, 48),
    "801": (4, 64, 8),
}


@lru_cache(maxsize=32)
def specs(pool: str) -> tuple[KernelSpec, ...]:
    return tuple(pools.proposals(pool, "gfx942"))


def instances(pool: str) -> dict[str, Instance]:
    every = (instance(spec.signature, spec.schedule, "gfx942") for spec in specs(pool))
    return {each.key(): each for each in every}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pool", COUNTS)
def test_a_pool_holds_as_many_kernels_as_the_generator_writes(pool: str) -> None:
    found = Counter(each.family for each in instances(pool).values())
    assert tuple(found[kind] for kind in KINDS) == COUNTS[pool]
    assert all(pool_profile(pool).allows(each) for each in instances(pool).values())


def test_receipt_0_has_all_that_the_generator_writes() -> None:
    assert len(instances("ck_default")) == 7825 - 1


@pytest.mark.parametrize("name", [name for name in KERNELS.POOLS if name.isdigit()])
def test_a_pool_goes_by_its_receipt_too(name: str) -> None:
    """It holds what the profile of that number allows, or less of it where the generator of gradients writes less."""
    pool = profile(name).name
    if name not in RECEIPTS:
        assert KERNELS.POOLS[name].startswith(pool)
    if pool == "fp32_min":
        assert specs(name) == specs(pool) != ()
    elif pool == "aiter_bwd_group":
        assert set(specs(name)) < set(specs(pool))


def test_receipts_of_flash_attn_and_pytorch() -> None:
    grads = {name: [each for each in instances(name).values() if each.family == "bwd_dq_dk_dv"] for name in "234"}
    assert {each.deterministic for each in grads["2"]} == {False, True}
    assert {each.deterministic for each in (*grads["3"], *grads["4"])} == {False}
    assert {each.bias for each in (*grads["2"], *grads["3"])} == {"no", "alibi"}
    assert {(each.bias, each.dbias) for each in grads["4"]} == {("no", False), ("bias", False), ("bias", True)}
    assert all(each.padding[2] == each.padding[3] for name in grads for each in grads[name])


@pytest.mark.parametrize("pool", ["ck_default", "flash_bwd", "pytorch", "aiter_bwd_batch", "aiter_bwd_group"])
def test_some_of_every_stage_is_legal(pool: str) -> None:
    """Of each stage but packed rows to be converted, which leave rows of no sequence to be filled."""
    legal = [spec for spec in specs(pool)[::3] if not OP.check(spec)]
    wanted = {"dot", "grad"} if pool == "aiter_bwd_group" else {"dot", "grad", "convert"}
    assert {spec.signature.family for spec in legal} == wanted
    for spec in legal[::17]:
        assert OP.spec_from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize("pool", ["fp32_all", "fp32_min"])
def test_fp32_is_proposed_and_refused_with_the_reason(pool: str) -> None:
    for spec in specs(pool)[::37]:
        assert any(broken.rule == "amd-backward-dtype" and "mid-2025" in broken.message for broken in OP.check(spec)), (
            spec.name
        )


# A pool, what is asked of it, and what is said where it has nothing.
EMPTY: list[tuple[str, dict[str, Any], str, str]] = [
    ("flash_fwd", {}, "the forward pass", "flash_bwd"),
    (
        "2",
        {"families": ("grad",), "features": ("bias+accum_dq",)},
        "flash (receipt 2) is for a bias of no or alibi",
        "pytorch",
    ),
    (
        "4",
        {"families": ("grad",), "features": ("alibi+accum_dq",)},
        "pytorch (receipt 4) is for a bias of no or bias",
        "flash_bwd",
    ),
    ("fp8_test", {}, "fp8bf16", "ck_default"),
    ("aiter_bwd_group", {"features": ("accum_all",)}, "packed lengths", "aiter_bwd_batch"),
    ("300", {"features": ("packed+accum_all",)}, "padded batches", "aiter_bwd_group"),
    ("aiter_bwd_batch", {"features": ("packed+accum_all",)}, "padded batches", "aiter_bwd_group"),
    ("pytorch", {"families": ("grad",), "features": ("alibi+accum_dq",)}, "a bias of no or bias", "flash_bwd"),
    ("flash_bwd", {"datatypes": ("fp32",)}, "kernels of fp16, bf16", "fp32_all"),
    ("ck_default", {"families": ("grad",), "features": ("softcap+accum_dq",)}, "soft cap", "loops"),
    ("ck_default", {"heads": ("96",), "families": ("dot",)}, "heads of 96", "128"),
]


@pytest.mark.parametrize(
    ("pool", "axes", "said", "remedy"), EMPTY, ids=[f"{one[0]}-{i}" for i, one in enumerate(EMPTY)]
)
def test_a_pool_that_has_nothing_says_which_rule_emptied_it(
    pool: str, axes: dict[str, Any], said: str, remedy: str
) -> None:
    with pytest.raises(RequestError) as caught:
        list(pools.proposals(pool, "gfx942", **axes))
    assert caught.value.rule == "pool-empty"
    assert said in str(caught.value)
    assert remedy in caught.value.remedy


def test_where_ck_tile_has_no_gradients_a_pool_says_so() -> None:
    with pytest.raises(RequestError, match="gfx1100"):
        list(pools.proposals("ck_default", "gfx1100"))


def test_names_are_those_of_the_dispatcher() -> None:
    base = Instance("gfx942", family="bwd_dq_dk_dv", tile=(16, 128, 128, 16, 128, 16, 32, 128, 128),
                    warp=(16, 16, 32, 16, 16, 16, 16, 16, 16), padding=(1, 1, 8, 8), block_per_cu=-1)  # fmt: skip
    assert replace(base, mask="top_left").config_name() == (
        "fmha_bwd_dq_dk_dv_fp16_batch_h128_qr_t16x128x128x16x128x16_w16x16x32_pad1188_mask=top_left_bias=no_bpc=-1"
    )
    fast = replace(base, tile=(32, 128, 128, 32, 128, 32, 32, 128, 128), tile_tag="trload", deterministic=True,
                   dropout=True, dropout_variant="dropout_wg16")  # fmt: skip
    assert fast.config_name().endswith("_drop=1_det=1_drv=dropout_wg16_bpc=-1")
    assert "_t32x128x128x32x128x32.trload_" in fast.config_name()
    assert "_db0_sr0_det1_" in fast.identifier()
    assert fast.key() != replace(fast, tile_tag="").key()


def test_a_kernel_has_the_name_it_has_there() -> None:
    first = {each.family: each for each in reversed(instances("ck_default").values())}
    assert first["bwd_dot_do_o"].config_name() == (
        "fmha_bwd_dot_do_o_fp16_batch_h32_qr_t64x128x32x128x32x128_w32x32x16_pad0110_mask=no_bias=no_bpc=-1"
    )
    assert (
        first["bwd_convert_dq"].config_name().startswith("fmha_bwd_convert_dq_fp16_batch_h32_qr_t64x128x32x128x32x128")
    )
    assert "_t32x128x32x32x32x32_w16x16x32_pad0000_" in first["bwd_dq_dk_dv"].config_name()


def test_what_ck_tiles_other_kernels_refuse() -> None:
    dot = next(spec for spec in specs("aiter_bwd_batch") if spec.signature.family == "dot")
    wrong = replace(dot, schedule=replace(dot.schedule, pipeline="convert_dq"))
    assert [broken.rule for broken in OP.check(wrong)] == ["amd-backward-family"]
    ordered = replace(dot, schedule=replace(dot.schedule, deterministic=True))
    assert [broken.rule for broken in OP.check(ordered)] == ["amd-backward-deterministic"]
    packed = next(spec for spec in specs("aiter_bwd_group") if spec.signature.family == "convert")
    assert "amd-backward-packed" in [broken.rule for broken in OP.check(packed)]
