"""Our own attention kernels on AMD GPUs: where they are, what they take, and where loops are left and why."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tilewright.arch import all_archs
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.backends.hip.attention.tiled import FAMILY, TiledAttentionSchedule, shape
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention import AttentionProblem, AttentionSignature
from tilewright.ops.attention.spec import normalized

ATTENTION = op("attention")
HIP = tuple(name for name, arch in all_archs().items() if arch.backend == "hip")
PLAIN = AttentionSignature("forward", "fp16", "fp16", "fp16")
HEADS = ((32, 32), (64, 64), (96, 96), (128, 128), (160, 160), (192, 128), (192, 192), (256, 256))
# What loops alone served on some arch or on all of them.
FEATURES: tuple[dict[str, Any], ...] = (
    {},
    {"mask": "window", "return_lse": True},
    {"mask": "generic"},
    {"masked": True},
    {"sink": True},
    {"bias": "tensor", "dtype_aux": "fp32"},
    {"bias": "tensor", "dtype_aux": "fp16", "varlen": True},
    {"bias": "alibi", "softcap": True},
    {"dropout": True, "pages": "strided", "page_lookup": "table"},
    {"pages": "vectorised", "page_lookup": "table"},
    {"pages": "strided", "page_lookup": "indices", "family": "split"},
    {"dtype_kv": "fp8_e4m3", "scales": "head"},
    {"dtype_q": "fp8_e4m3", "dtype_kv": "fp8_e4m3", "dtype_out": "bf16", "scales": "block"},
    {"dtype_out": "fp32"},
)
SCHEDULE = TiledAttentionSchedule(32, 2, 1)
HEADS_OF_160: dict[str, Any] = {"head_dim": 160, "head_dim_v": 160}
FEW_LANES = TiledAttentionSchedule(32, 2, 1, True)
TWO_BLOCKS = TiledAttentionSchedule(64, 4, 2, True)
HEADS_OF_64 = {"head_dim": 64, "head_dim_v": 64}


def signature(heads: tuple[int, int] = (128, 128), **features: Any) -> AttentionSignature:
    return normalized(replace(PLAIN, head_dim=heads[0], head_dim_v=heads[1], **features))


@pytest.mark.parametrize("arch", HIP)
def test_loops_are_only_where_no_matrix_instruction_is(arch: str) -> None:
    for heads, features in product(HEADS, FEATURES):
        wanted = signature(heads, **features)
        pipelines = {spec.schedule.pipeline for spec in ATTENTION.candidates(wanted, arch)}
        assert "tiled" in pipelines, (heads, features)
        assert "loops" not in pipelines, (heads, features)


@pytest.mark.parametrize("arch", HIP)
@pytest.mark.parametrize("heads", [(512, 512), (576, 512)])
def test_heads_that_no_wave_has_room_for_are_shared_out_by_columns(arch: str, heads: tuple[int, int]) -> None:
    """Registers (RDNA) or LDS (CDNA before gfx950) have no room for a wave's rows with all their columns."""
    for features in ({}, {"mask": "window", "return_lse": True}, {"pages": "strided", "page_lookup": "table"}):
        pipelines = {spec.schedule.pipeline for spec in ATTENTION.candidates(signature(heads, **features), arch)}
        assert "tiled" in pipelines
        assert "loops" not in pipelines
    schedule = TiledAttentionSchedule(16, 4, 1, True, 4)
    assert schedule.tile == (16, 16)
    assert schedule.label() == "tiled_16x16_waves4_columns4_lean"


@pytest.mark.parametrize("arch", HIP)
def test_a_refusal_names_the_arch_and_what_it_lacks(arch: str) -> None:
    wanted = signature(dtype_q="fp32", dtype_kv="fp32", dtype_out="fp32")
    refused = ATTENTION.check(KernelSpec("attention", wanted, SCHEDULE, arch))
    if {"mfma", "wmma-fp32"} & all_archs()[arch].features:
        assert not refused
    else:
        assert [one.rule for one in refused] == ["amd-matrix"]
        assert arch in refused[0].message


@pytest.mark.parametrize(("rule", "arch", "has", "schedule"), [
    ("amd-attention-family", "gfx942", {"family": "combine"}, SCHEDULE),
    ("amd-scales", "gfx1201", {"dtype_kv": "fp8_e4m3", "scales": "block"}, SCHEDULE),
    ("amd-warps", "gfx942", {}, TiledAttentionSchedule(16, 4, 1, True, 3)),
    ("amd-tile-size", "gfx950", {}, TiledAttentionSchedule(16, 2, 1)),  # an instruction takes 32 keys there
    ("amd-tile-size", "gfx90a", {}, TiledAttentionSchedule(24, 2, 1)),
    ("amd-warps", "gfx90a", {}, TiledAttentionSchedule(32, 32, 1)),
    ("amd-lds", "gfx90a", {"head_dim": 512, "head_dim_v": 512}, TiledAttentionSchedule(64, 2, 1)),
    ("amd-registers", "gfx1100", {"head_dim": 256, "head_dim_v": 256}, TiledAttentionSchedule(32, 2, 1)),
    # Compiled, these spilled 2 and 20 registers; the plain one fits.
    ("amd-registers", "gfx1201", {**HEADS_OF_64, "pages": "strided", "page_lookup": "table"}, TWO_BLOCKS),
    ("amd-registers", "gfx1201", {**HEADS_OF_64, "softcap": True, "dropout": True}, TWO_BLOCKS),
    # These 54, 2, 8, 13, 10 and 2.
    ("amd-registers", "gfx1100", {**HEADS_OF_160, "bias": "alibi", "dropout": True, "mask": "window"}, FEW_LANES),
    ("amd-registers", "gfx1201", {**HEADS_OF_160, "bias": "alibi", "dropout": True, "mask": "window"}, FEW_LANES),
    ("amd-registers", "gfx1100", HEADS_OF_160, FEW_LANES),
    ("amd-registers", "gfx1100", {"head_dim": 96, "head_dim_v": 96, "bias": "tensor", "mask": "window"},
     TiledAttentionSchedule(64, 2, 1, True)),
    ("amd-registers", "gfx1100", {"head_dim": 32, "head_dim_v": 32}, TiledAttentionSchedule(128, 2, 1)),
    ("amd-registers", "gfx1100", {"head_dim": 192, "head_dim_v": 192, "bias": "tensor", "mask": "window"},
     TiledAttentionSchedule(64, 4, 1, True, 4)),
    # This 2, without dropout or without a soft cap none.
    ("amd-registers", "gfx950", {"head_dim": 128, "head_dim_v": 128, "softcap": True, "dropout": True},
     TiledAttentionSchedule(128, 8, 2, True)),
])  # fmt: skip
def test_every_rule_is_met(rule: str, arch: str, has: dict[str, Any], schedule: TiledAttentionSchedule) -> None:
    wanted = normalized(replace(PLAIN, **has))
    refused = ATTENTION.check(KernelSpec("attention", wanted, schedule, arch))
    assert rule in [one.rule for one in refused]
    assert all(one.remedy for one in refused)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_two_blocks_of_rows_without_pages_fit(arch: str) -> None:
    assert not ATTENTION.check(KernelSpec("attention", signature((64, 64)), TWO_BLOCKS, arch))


@pytest.mark.parametrize(("arch", "q", "kv", "as_"), [
    ("gfx942", "fp8_e4m3fnuz", "fp8_e4m3fnuz", "bf16"),
    ("gfx1100", "fp16", "fp8_e4m3", "fp16"),
    ("gfx90a", "fp32", "fp32", "fp32"),
    ("gfx1201", "fp32", "fp32", None),
    ("gfx1250", "fp32", "fp32", "fp32"),
])  # fmt: skip
def test_elements_are_multiplied_as_a_type_that_has_their_numbers(arch: str, q: str, kv: str, as_: str | None) -> None:
    assert shape.multiplied(replace(PLAIN, dtype_q=q, dtype_kv=kv), all_archs()[arch]) == as_


def test_scales_by_block_beside_fp16_are_multiplied_as_fp32() -> None:
    scaled = signature(dtype_kv="fp8_e4m3fnuz", scales="block")
    assert shape.multiplied(scaled, all_archs()["gfx942"]) == "fp32"
    assert shape.multiplied(scaled, all_archs()["gfx1201"]) is None


@pytest.mark.parametrize("arch", HIP)
def test_a_kernel_takes_any_size_stride_and_alignment(arch: str) -> None:
    for rows, keys, head in ((1, 1, 1), (37, 41, 53), (129, 0, 127)):
        odd = AttentionProblem(
            3, 6, rows, keys, head, heads_kv=2, dtype_q="fp16", seqlens_q=True, seqlens_k=True, aligned=False,
            q_strides=(100000, head + 3, 5000), k_strides=(90000, 3 * head + 1, head),
        )  # fmt: skip
        tiled = [spec for spec in ATTENTION.candidates(odd.signature, arch) if spec.schedule.pipeline == "tiled"]
        assert tiled
        for spec in tiled:
            assert ATTENTION.supports(spec, odd) == []


def test_more_rows_than_places_are_refused() -> None:
    many = AttentionProblem(1, 1, 1 << 30, 16, 64, dtype_q="fp16")
    spec = KernelSpec("attention", many.signature, SCHEDULE, "gfx942")
    assert [one.rule for one in ATTENTION.supports(spec, many)] == ["amd-operand-size"]
    blocks = AttentionProblem(1 << 20, 64, 2048, 16, 64, dtype_q="fp16")
    assert [one.rule for one in ATTENTION.supports(spec, blocks)] == ["amd-tiles"]


@pytest.mark.parametrize("arch", HIP)
def test_what_is_proposed_is_legal_and_little(arch: str) -> None:
    facts = all_archs()[arch]
    for heads, features in product(HEADS, FEATURES):
        wanted = signature(heads, **features)
        proposed = [one for one in AMD.schedules("default", wanted, facts) if one.pipeline == "tiled"]
        assert 0 < len(proposed) <= 4
        for schedule in proposed:
            assert not list(FAMILY.violations(wanted, schedule, facts))
        full = {one for one in AMD.schedules("full", wanted, facts) if one.pipeline == "tiled"}
        assert len(full) > len(proposed)


def test_few_rows_of_many_heads_fill_a_tile() -> None:
    """Query heads of a head of keys share tiles, so that a decode is not estimated as a whole tile a head."""
    decode = AttentionProblem(8, 32, 1, 4096, 128, heads_kv=4, dtype_q="bf16")
    spec = KernelSpec("attention", decode.signature, SCHEDULE, "gfx1100")
    apart = replace(decode, heads_kv=32)
    assert AMD.estimate(spec, decode, 1) < AMD.estimate(spec, apart, 1) / 2
