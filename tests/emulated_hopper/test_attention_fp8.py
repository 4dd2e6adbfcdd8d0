"""Attention by the fp8 pipeline on the emulated Hopper GPU: every feature and shape, on problems drawn by seed."""

from __future__ import annotations

import pytest

from tests.emulated_hopper.attentions import wrong
from tests.emulated_hopper.emulator import Emulator
from tests.emulated_hopper.test_attention_mma import fp8, problems
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.nvidia_fp8 import Fp8Schedule

CASES: dict[str, tuple[Fp8Schedule, AttentionProblem]] = {
    "plain": (Fp8Schedule(64, 2, 2), fp8(128)),
    "wide_tiles": (Fp8Schedule(128, 2, 3), fp8(64, window_right=0, scales_q="tensor", scales_kv="head")),
    "three_warpgroups": (Fp8Schedule(64, 3, 3), fp8(96, 64, dtype_out="fp32", window_right=0)),
    "large_heads": (Fp8Schedule(64, 1, 2), fp8(256, 192, scales_q="head", scales_kv="tensor")),
    "packed": (Fp8Schedule(96, 2, 2), fp8(64, packed=True, window_right=0)),
    "sink_keys": (Fp8Schedule(32, 2, 2), fp8(64, window_left=8, window_right=0, sink_keys=4, sink=True)),
    "scores": (Fp8Schedule(64, 2, 2), fp8(64, softcap=True, bias="alibi", scales_q="head", scales_kv="head")),
    "dropout": (Fp8Schedule(32, 2, 2), fp8(64, dropout=True, mask_shape=(1, 1, 1, 1))),
    "split": (Fp8Schedule(32, 1, 2), fp8(64, family="split", splits=2, dtype_out="fp32")),
    "pages": (Fp8Schedule(64, 2, 2), fp8(128, pages="strided", lookup="table", lengths_k=True, scales_kv="head")),
}


@pytest.mark.parametrize("name", CASES)
def test_problems_drawn_by_seed(emulator: Emulator, name: str) -> None:
    schedule, first = CASES[name]
    assert wrong(emulator, schedule, *problems(f"fp8 {name}", first, whole=16)) == []
