"""Kernels of the pools keep everything in registers: what the rules let pass, drawn by seed, does not spill."""

from __future__ import annotations

from typing import Any

import pytest

from tests import amd_toolchain
from tests.amd_emulated.survey import Wish, draw, measure
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.backends.hip.attention.tiled import TiledAttentionSchedule
from tilewright.backends.hip.attention_backward.tiled import TiledBackwardSchedule
from tilewright.ops import op
from tilewright.ops.attention import AttentionSignature
from tilewright.ops.attention.spec import normalized
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.amd

SEED = 20261117
CK_TILE = Wish(pipelines=("mem", "compv3", "compv4", "compv5", "preshuffle"))  # an eighth of a minute each
OURS = Wish(pipelines=("tiled", "wmma", "mfma", "fma"))  # two seconds each


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_a_legal_kernel_of_ck_tile_has_no_scratch(arch: str) -> None:
    with amd_toolchain.in_force():
        found = measure(draw("gemm", f"scratch {SEED} {arch}", arch, CK_TILE, tight=True))
    assert found.get("scratch") == 0, found


@pytest.mark.parametrize("arch", ["gfx908", "gfx1100", "gfx1200", "gfx1201", "gfx1250"])
@pytest.mark.parametrize("name", ["attention", "attention_backward", "conv", "gemm"])
def test_a_legal_kernel_of_ours_has_no_scratch(name: str, arch: str) -> None:
    with amd_toolchain.in_force():
        found = measure(draw(name, f"scratch {SEED} {name} {arch}", arch, OURS, tight=True))
    assert found.get("scratch") == 0, found


def test_a_soft_cap_takes_no_branch_for_each_score() -> None:
    """With one, 146 registers of a lane did not fit, whatever their rule counted."""
    signature = AttentionSignature("forward", "fp16", "fp16", "fp16", 192, 192, softcap=True)
    spec = KernelSpec("attention", signature, TiledAttentionSchedule(32, 4, 1, True), "gfx1100")
    with amd_toolchain.in_force():
        found = measure(spec)
    assert found.get("scratch") == 0, found


def test_gradients_of_large_heads_have_no_scratch_on_rdna_3() -> None:
    """The compiler put matrix instructions behind all loads of a product: 346 registers of a lane did not fit."""
    signature = AttentionBackwardSignature("grad", "fp16", 256, 256)
    spec = KernelSpec("attention_backward", signature, TiledBackwardSchedule(16, 8, 8), "gfx1100")
    with amd_toolchain.in_force():
        found = measure(spec)
    assert found.get("scratch") == 0, found


def test_pages_of_one_slot_and_few_waves_are_refused_before_they_spill() -> None:
    """What the rule on registers lets pass of such blocks: one near its limit."""
    signature = AttentionSignature(
        "forward", "bf16", "bf16", "bf16", 128, 128, mask="window", bias="alibi", dtype_aux="bf16", return_lse=True,
        varlen=True, pages="strided", page_lookup="indices",
    )  # fmt: skip
    schedule = CkTileAttentionSchedule("qr_async", (16, 96, 16, 128, 16, 128), (1, 1, 1), (16, 16, 16))
    spec = KernelSpec("attention", normalized(signature), schedule, "gfx950")
    assert not op("attention").check(spec)
    with amd_toolchain.in_force():
        found = measure(spec)
    assert found.get("scratch") == 0, found


def test_dropout_of_one_wave_compiles() -> None:
    """Places in such a block have one coordinate less, which the compiler refused."""
    signature = AttentionSignature("forward", "fp16", "fp16", "fp16", 32, 32, dropout=True)
    schedule = CkTileAttentionSchedule("qr", (16, 32, 16, 32, 32, 32), (1, 1, 1), (16, 16, 16))
    with amd_toolchain.in_force():
        found = measure(KernelSpec("attention", signature, schedule, "gfx90a"))
    assert found.get("scratch") == 0, found


def _attention(
    arch: str, schedule: TiledAttentionSchedule, dtypes: tuple[str, str, str], head: int, **has: Any
) -> KernelSpec:
    family = has.pop("family", "forward")
    signature = AttentionSignature(family, *dtypes, head, head, **has)
    return KernelSpec("attention", normalized(signature), schedule, arch)


BF16, FP16 = ("bf16",) * 3, ("fp16",) * 3
PAGES: dict[str, Any] = {"varlen": True, "pages": "strided", "page_lookup": "indices"}
# Each spilled while what follows from places of keys and rows was held from tile to tile; of gfx1250, inline assembly
# had registers of all words, and it reaches the first 256 only.
HELD = [
    _attention("gfx950", TiledAttentionSchedule(128, 8, 2, True), BF16, 128, mask="window", **PAGES),
    _attention("gfx942", TiledAttentionSchedule(128, 8, 2, True), BF16, 32, mask="window", masked=True),
    _attention("gfx1200", TiledAttentionSchedule(64, 8, 1), FP16, 128, mask="window", return_lse=True),
    _attention("gfx1201", TiledAttentionSchedule(64, 2, 2, True), ("bf16", "bf16", "fp32"), 64, family="split"),
    _attention("gfx1100", TiledAttentionSchedule(64, 4, 1, True), BF16, 128, mask="window", dropout=True, varlen=True),
    _attention("gfx1250", TiledAttentionSchedule(32, 1, 2), ("fp16", "fp8_e4m3", "fp16"), 256, bias="alibi", **PAGES),
]


@pytest.mark.parametrize("spec", HELD, ids=lambda spec: spec.name)
def test_what_follows_from_places_is_not_held(spec: KernelSpec) -> None:
    assert not op("attention").check(spec)
    with amd_toolchain.in_force():
        found = measure(spec)
    assert found.get("scratch") == 0, found


def test_loops_of_gradients_hold_no_masks_of_lanes() -> None:
    """With heads of 256, gfx90a had too few scalar registers for them: 36 bytes."""
    signature = AttentionBackwardSignature("grad", "fp32", 256, 256, mask="generic", accumulate="dq")
    with amd_toolchain.in_force():
        found = measure(KernelSpec("attention_backward", signature, LoopsSchedule(), "gfx90a"))
    assert found.get("scratch") == 0, found
