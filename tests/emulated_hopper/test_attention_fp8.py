"""Attention by the fp8 pipeline on the emulated Hopper GPU: every feature and shape, on problems drawn by seed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.emulated_hopper.attentions import prove, wrong
from tests.emulated_hopper.emulator import LATE, Emulator, apart
from tests.emulated_hopper.test_attention_mma import fp8, problems
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.ops import KernelSpec
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.bindings.attention import samples
from tilewright.runtime.requests import Sample

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

CASES: dict[str, tuple[Fp8Schedule, AttentionProblem]] = {
    "plain": (Fp8Schedule(64, 2, 2), fp8(128)),
    "wide_tiles": (Fp8Schedule(128, 2, 3), fp8(64, window_right=0, q_scale="tensor", kv_scales="head")),
    "three_warpgroups": (Fp8Schedule(64, 3, 3), fp8(96, 64, dtype_out="fp32", window_right=0)),
    "large_heads": (Fp8Schedule(64, 1, 2), fp8(256, 192, q_scale="head", kv_scales="tensor")),
    "varlen": (Fp8Schedule(96, 2, 2), fp8(64, varlen=True, window_right=0)),
    "sink_tokens": (Fp8Schedule(64, 2, 2), fp8(64, window_left=8, window_right=0, sink_tokens=4, sink=True)),
    "scores": (Fp8Schedule(64, 2, 2), fp8(64, softcap=True, bias="alibi", q_scale="head", kv_scales="head")),
    "dropout": (Fp8Schedule(64, 2, 2), fp8(64, dropout=True, mask_shape=(1, 1, 1, 1))),
    "split": (Fp8Schedule(64, 1, 2), fp8(64, family="split", num_splits=2, dtype_out="fp32")),
    "pages": (Fp8Schedule(64, 2, 2), fp8(128, pages="strided", page_lookup="table", seqlens_k=True, kv_scales="head")),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_problems_drawn_by_seed(emulator: Emulator, name: str) -> None:
    schedule, first = CASES[name]
    assert wrong(emulator, schedule, *problems(f"fp8 {name}", first, whole=16)) == []


@pytest.mark.parametrize("key", [3, 70, 150, 199])
def test_a_key_that_is_no_number_is_none_in_the_rows_that_see_it(emulator: Emulator, key: int) -> None:
    """In either part of the first tile and of one after it, where scores are compared as whole numbers."""
    one = replace(fp8(64, window_right=0, align="bottom_right"), seqlen_q=200, seqlen_k=200)
    spec = KernelSpec("attention", one.signature, Fp8Schedule(128, 2, 2), "sm_90a")

    def spoiled(made: Sample) -> Sample:
        at = samples.NAMES.index("k")
        k = made.operands[at].copy()
        k.view("uint8")[:, key, :, 5] = 0x7F
        return replace(made, operands=(*made.operands[:at], k, *made.operands[at + 1 :]))

    kernel = emulator.kernel(spec)
    assert apart(kernel, partial(prove, kernel, one, 0, spoiled), LATE, key, 3) == ""
