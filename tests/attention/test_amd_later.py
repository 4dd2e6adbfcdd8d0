"""Pipelines of gfx950 that came with CK Tile's headers of late 2025: legal and in the pools where kernels are written
for those headers, refused where they are not, and what they refuse themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.backends.hip.attention.ck_tile import headers, later, versions
from tilewright.backends.hip.attention.ck_tile.instance import Instance
from tilewright.errors import ToolchainError
from tilewright.ops.attention import AttentionSignature, legality
from tilewright.ops.base import KernelSpec

GFX950 = arch("gfx950")
PLAIN = AttentionSignature("forward", "bf16", "bf16", "bf16")
FEATURES: list[dict[str, Any]] = [{}, {"mask": "window", "return_lse": True}, {"varlen": True}, {"softcap": True},
                                  {"bias": "alibi"}, {"dropout": True}]  # fmt: skip
V3 = Instance(
    "gfx950", data_type="bf16", pipeline="v3", tile=(256, 32, 128, 128, 32, 128), wave=(8, 1, 1, 8, 1, 1, 1, 1, 1),
    warp=(32, 32, 16, 32, 32, 16, 16, 16, 16), padding=(True, True, False, False), block_per_cu=-1,
)  # fmt: skip


@pytest.fixture
def late() -> Iterator[None]:
    with settings.override(ck_tile_profile="late-2025"):
        yield


def proposed(pool: str, signature: AttentionSignature) -> list[KernelSpec]:
    return [KernelSpec("attention", signature, one, "gfx950") for one in AMD.schedules(pool, signature, GFX950)]


def legal(pool: str, signature: AttentionSignature) -> set[str]:
    return {spec.schedule.pipeline for spec in proposed(pool, signature) if not legality.check(spec)}


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("pool", ["default", "ck_default", "flash_fwd", "pytorch", "aiter_batch"])
def test_pools_hold_v3_where_kernels_are_for_its_headers(pool: str) -> None:
    assert "v3" in legal(pool, replace(PLAIN, mask="window"))
    assert "v3" in legal(pool, PLAIN)
    assert "v3" not in legal(pool, replace(PLAIN, softcap=True))
    assert not {"qr", "qr_async", "qs"} & legal(pool, PLAIN)  # not written for these headers


@pytest.mark.usefixtures("late")
def test_what_these_headers_lack_is_left_to_kernels_of_our_own() -> None:
    assert "tiled" in legal("default", PLAIN)
    assert legal("ck_default", replace(PLAIN, softcap=True)) == {"tiled"}


def test_without_its_headers_v3_says_which_it_needs_and_the_older_pipelines_are_there() -> None:
    refused = {spec: legality.check(spec) for spec in proposed("ck_default", PLAIN) if spec.schedule.pipeline == "v3"}
    assert refused
    for broken in refused.values():
        said = next(one for one in broken if one.rule == "amd-attention-headers")
        assert "mid-2025" in said.message
        assert "late-2025" in said.remedy
    assert legal("ck_default", PLAIN) == {"qr_async"}
    assert "v3" not in legal("default", PLAIN)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("features", FEATURES, ids=str)
def test_what_is_remembered_of_schedules_is_what_the_rules_say(features: dict[str, Any]) -> None:
    signature = replace(PLAIN, **features)
    is_legal = legality.legal_schedules(signature, "gfx950")
    found = proposed("ck_default", signature)
    assert found
    for spec in found:
        assert is_legal(spec.schedule) == (not legality.check(spec)), (spec, legality.check(spec))


def test_verdicts_of_one_version_are_not_those_of_another() -> None:
    before, is_legal = legal("ck_default", PLAIN), legality.legal_schedules(PLAIN, "gfx950")
    of_v3 = next(
        spec
        for spec in proposed("ck_default", PLAIN)
        if (spec.schedule.pipeline, spec.schedule.tile) == ("v3", V3.tile)
    )
    assert not legality.is_legal(of_v3)
    with settings.override(ck_tile_profile="late-2025"):
        assert "v3" in legal("ck_default", PLAIN)
        assert is_legal(of_v3.schedule)
        assert legality.is_legal(of_v3)
    assert legal("ck_default", PLAIN) == before
    assert not is_legal(of_v3.schedule)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("amd-attention-newest", {"bias": "alibi"}),
        ("amd-attention-newest", {"logits": True}),
        ("amd-attention-newest", {"dropout": True}),
        ("amd-attention-newest", {"data_type": "fp8bf16"}),
        ("amd-attention-v3-block", {"tile": (128, 32, 128, 128, 32, 128), "wave": (4, 1, 1, 4, 1, 1, 1, 1, 1)}),
        ("amd-attention-v3-block", {"warp": (16, 16, 32, 16, 16, 32, 16, 16, 16)}),
        ("amd-attention-v3-steps", {"tile": (256, 32, 64, 128, 32, 128)}),
        ("amd-attention-v3-steps", {"tile": (256, 64, 128, 128, 32, 128)}),
        ("amd-attention-v3-steps", {"tile": (256, 16, 128, 128, 16, 128)}),
        ("amd-attention-v3-pads", {"padding": (True, True, True, True)}),
        ("amd-attention-lds", {"tile": (256, 64, 128, 128, 64, 128)}),
    ],
)
def test_what_v3_refuses(rule: str, change: dict[str, Any]) -> None:
    assert not list(headers.violations(V3, GFX950))
    found = {one.rule: one for one in headers.violations(replace(V3, **change), GFX950)}
    assert rule in found, sorted(found)
    assert found[rule].message
    assert found[rule].remedy


TRLOAD = replace(
    V3, pipeline="qr_async_trload", tile=(128, 64, 32, 64, 32, 64), wave=(4, 1, 1, 4, 1, 1, 1, 1, 1), hdim_q=64,
    hdim_v=64, padding=(False, False, False, False),
)  # fmt: skip


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("amd-attention-newest", {"bias": "bias"}),
        ("amd-attention-trload-block", {"tile": (256, 64, 32, 64, 32, 64), "wave": (8, 1, 1, 8, 1, 1, 1, 1, 1)}),
        ("amd-attention-trload-block", {"tile": (128, 64, 64, 128, 32, 128), "hdim_q": 128, "hdim_v": 128}),
        ("amd-attention-trload-block", {"tile": (64, 64, 64, 128, 32, 128), "hdim_q": 128, "hdim_v": 128,
                                        "warp": (16, 16, 32, 16, 16, 32, 16, 16, 16)}),  # executed, it was wrong
        ("amd-attention-trload-pads", {"padding": (True, True, False, False)}),
    ],
)  # fmt: skip
def test_what_trload_refuses(rule: str, change: dict[str, Any]) -> None:
    assert not list(headers.violations(TRLOAD, GFX950))
    assert not list(headers.violations(replace(TRLOAD, padding=(False, False, True, True)), GFX950))
    found = {one.rule: one for one in headers.violations(replace(TRLOAD, **change), GFX950)}
    assert rule in found, sorted(found)
    assert found[rule].message
    assert found[rule].remedy


def test_bytes_of_lds_are_those_the_compiler_counted() -> None:
    assert later.lds_bytes(V3) == 65536
    assert later.lds_bytes(replace(V3, tile=(256, 64, 128, 128, 64, 128))) == 102400


def test_no_version_is_asked_for_what_it_has_not() -> None:
    assert versions.having("forward v3") == ["late-2025"]
    assert versions.having("forward qr_async") == ["mid-2025"]
    assert versions.having("forward telepathy") == []
    assert versions.written("spring-2031") == frozenset()
    with pytest.raises(ToolchainError, match="spring-2031"):
        versions.attention_profile("spring-2031")


@pytest.mark.usefixtures("late")
def test_the_precompiled_header_is_for_versions_that_have_its_example() -> None:
    assert AMD.shared_example("gfx950") is None
    with settings.override(ck_tile_profile="mid-2025"):
        assert AMD.shared_example("gfx950") is not None
