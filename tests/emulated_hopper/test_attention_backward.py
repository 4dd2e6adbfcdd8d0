"""Attention's gradients on the emulated GPU: every family, on problems drawn by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.emulated_hopper.backwards import drawn, prove_added, prove_cleared, wrong
from tests.emulated_hopper.emulator import EAGER, Emulator, apart
from tilewright.backends.cuda.attention_backward.mma import MmaSchedule
from tilewright.backends.cuda.attention_backward.ws import WsSchedule
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem import OPERANDS
from tilewright.ops.attention_backward.schedule import LoopsSchedule

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 2411, 6
STRIDES: dict[str, Any] = {f"{name}_strides": () for name in OPERANDS}
SMALL = (0, 1, 5, 17, 33), (0, 1, 7, 20, 40)


def like(head_dim: int, head_dim_v: int = 0, family: str = "grad", **more: Any) -> AttentionBackwardProblem:
    said = {"dtype": "bf16", "accumulate": "dq" if family == "grad" else "none", **more}
    one = AttentionBackwardProblem(1, 1, 1, 1, head_dim, head_dim_v=head_dim_v or head_dim, **said)
    return one.stage(family, said["accumulate"])


WS = {
    "plain": (WsSchedule("ws", 64), like(128)),
    "causal": (WsSchedule("ws", 64), like(128, window_right=0)),
    "tight": (WsSchedule("ws", 64, ds_stages=1, overlap="none"), like(128, window_right=0, dtype="fp16")),
    "rows_of_80": (WsSchedule("ws", 80, overlap="none"), like(128)),
    "small_heads": (WsSchedule("ws", 96), like(64)),
    "small_heads_causal": (WsSchedule("ws", 112), like(64, window_right=0)),
    "small_heads_tight": (WsSchedule("ws", 128, overlap="none"), like(64, window_right=0)),
    "heads_of_96": (WsSchedule("ws", 64, q_stages=3), like(96, window_right=0)),
    "heads_of_96_rows_of_80": (WsSchedule("ws", 80), like(96)),
    "heads_apart": (WsSchedule("ws", 64), like(128, 64)),
    "packed": (WsSchedule("ws", 64), like(128, varlen=True, window_right=0)),
    "packed_whole": (WsSchedule("ws", 96), like(64, varlen=True)),
    "sink_keys": (WsSchedule("ws", 64), like(128, window_left=8, window_right=0, sink_tokens=4)),
    "shared": (WsSchedule("ws", 64), like(128, window_right=0, accumulate="all")),
    "shared_small_heads": (WsSchedule("ws", 96), like(64, accumulate="all")),
    "shared_packed": (WsSchedule("ws", 64), like(128, 64, varlen=True, window_right=0, accumulate="all")),
    "shared_sink_keys": (WsSchedule("ws", 64),
                         like(128, window_left=8, window_right=0, sink_tokens=4, accumulate="all", dtype="fp16")),
    "alibi": (WsSchedule("ws", 64, overlap="none"), like(64, bias="alibi", window_right=0)),
    "bias": (WsSchedule("ws", 64, overlap="none"),
             like(64, bias="tensor", dtype_aux="bf16", mask_shape=(1, 1, 1, 1))),
    "dbias": (WsSchedule("ws", 96, overlap="none"), like(32, bias="tensor", dbias=True, window_right=0)),
    "dropout": (WsSchedule("ws", 64, overlap="none"), like(64, dropout=True, window_right=0)),
    "dropout_shared": (WsSchedule("ws", 48, overlap="none"),
                       like(128, dropout=True, bias="alibi", accumulate="all", varlen=True)),
    "wide": (WsSchedule("ws", 64, do_stages=1, overlap="none"), like(256, window_right=0)),
    "wide_latent": (WsSchedule("ws", 64), like(192, 128, window_right=0)),
    "wide_shared": (WsSchedule("ws", 64, overlap="none"), like(160, 192, accumulate="all", varlen=True, dtype="fp16")),
    "wide_values": (WsSchedule("ws", 64, do_stages=1, overlap="none"), like(64, 256, dropout=True, bias="alibi")),
    "capped": (WsSchedule("ws", 96), like(64, softcap=True, window_right=0)),
    "capped_tight": (WsSchedule("ws", 64, do_stages=1, overlap="none"), like(128, softcap=True, window_right=0)),
}  # fmt: skip


@pytest.mark.parametrize("name", WS)
def test_ws(emulator: Emulator, name: str) -> None:
    schedule, one = WS[name]
    rng = random.Random(f"{SEED} {name}")
    assert wrong(emulator, schedule, *(drawn(rng, one) for _ in range(COUNT))) == []


@pytest.mark.parametrize(
    "name", ["plain", "causal", "packed", "sink_keys", "small_heads", "shared", "shared_packed", "wide_latent"]
)
def test_ws_in_turns(emulator: Emulator, name: str) -> None:
    """In a fixed order, with blocks enough that some wait for others."""
    schedule, one = WS[name]
    rng = random.Random(f"{SEED} turns {name}")
    problems = [replace(drawn(rng, one), deterministic=True) for _ in range(COUNT)]
    assert wrong(emulator, schedule, *problems, multiprocessors=3) == []


@pytest.mark.parametrize("name", ["causal", "packed", "wide_latent"])
def test_ws_of_groups_that_no_cache_keeps(emulator: Emulator, name: str) -> None:
    """Blocks go from the last rows down, all heads of the group at each, in any order and in turns."""
    schedule, one = WS[name]
    rng = random.Random(f"{SEED} groups {name}")
    sizes: dict[str, Any] = {"batch": 2, "heads_q": 6, "heads_kv": 2, "window_left": -1, "seqlens_q": False}
    problems = [replace(drawn(rng, one, ((150, 257), (200, 300))), **sizes, deterministic=bool(index % 2))
                for index in range(4)]  # fmt: skip
    if one.varlen:
        problems = [replace(each, total_q=2 * each.seqlen_q - 70, total_k=2 * each.seqlen_k - 90) for each in problems]
    problems = [replace(each, **{f"{name}_strides": () for name in OPERANDS}) for each in problems]  # type: ignore[arg-type]
    assert wrong(emulator, schedule, *problems, multiprocessors=3) == []


MMA = {
    "plain": (MmaSchedule("mma", 64, 4), like(64, accumulate="none")),
    "causal": (MmaSchedule("mma", 32, 8), like(128, accumulate="none", window_right=0)),
    "packed": (MmaSchedule("mma", 32, 4), like(64, accumulate="none", varlen=True, window_right=0, dtype="fp16")),
    "large_heads": (MmaSchedule("mma", 32, 2, 2), like(256, accumulate="none", window_right=0)),
    "heads_apart": (MmaSchedule("mma", 32, 4, 2), like(192, 128, accumulate="none")),
    "of_48_kb": (MmaSchedule("mma", 16, 2), like(128, accumulate="none", window_right=0)),
    "of_48_kb_small_heads": (MmaSchedule("mma", 16, 4), like(96, accumulate="none", dtype="fp16")),
    "bias": (MmaSchedule("mma", 32, 4), like(64, accumulate="none", bias="tensor", dbias=True)),
    "bias_of_two_bytes": (MmaSchedule("mma", 32, 4), like(64, accumulate="none", bias="tensor", dtype_aux="bf16")),
    "alibi": (MmaSchedule("mma", 32, 4), like(64, accumulate="none", bias="alibi", dalibi=True, window_right=0)),
    "masked": (MmaSchedule("mma", 32, 4), like(64, accumulate="none", mask_shape=(1, 1, 1, 1), softcap=True)),
    "dropout": (MmaSchedule("mma", 64, 4), like(64, accumulate="none", dropout=True, window_right=0)),
    "sink_keys": (MmaSchedule("mma", 32, 4),
                  like(32, accumulate="none", window_left=8, window_right=0, sink_tokens=4, dropout=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", MMA)
def test_mma(emulator: Emulator, name: str) -> None:
    schedule, one = MMA[name]
    rng = random.Random(f"{SEED} mma {name}")
    assert wrong(emulator, schedule, *(drawn(rng, one) for _ in range(COUNT)), arch="sm_80") == []


ROWS = {
    "dot": like(128, family="dot"),
    "dot_of_fp32": like(96, family="dot", dtype="fp32", dlse=True, dsink=True),
    "dot_packed": like(64, family="dot", varlen=True, dsink=True),
    "convert": like(128, family="convert", accumulate="dq"),
    "convert_all": like(64, 128, family="convert", accumulate="all", dtype="fp16"),
    "convert_packed": like(64, family="convert", accumulate="all", varlen=True),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(emulator: Emulator, name: str) -> None:
    rng = random.Random(f"{SEED} rows {name}")
    assert wrong(emulator, RowsSchedule(), *(drawn(rng, ROWS[name]) for _ in range(COUNT))) == []


def test_dot_clears_what_grad_adds_to(emulator: Emulator) -> None:
    rows = replace(like(64, family="dot"), batch=2, heads_q=3, heads_kv=3, seqlen_q=130, **STRIDES)
    spec = KernelSpec("attention_backward", rows.signature, RowsSchedule(), "sm_90a")
    kernel = emulator.kernel(spec)
    for size in (4, 4096, 100_004):
        assert apart(kernel, partial(prove_cleared, kernel, rows, size), EAGER, 1, 4) == ""
    for deterministic in (False, True):
        grad = replace(
            like(64), heads_q=2, heads_kv=1, seqlen_q=130, seqlen_k=150, deterministic=deterministic, **STRIDES
        )
        kernel = emulator.kernel(KernelSpec("attention_backward", grad.signature, WsSchedule("ws", 96), "sm_90a"))
        assert apart(kernel, partial(prove_added, kernel, grad), EAGER, 1, 4) == ""


LOOPS = {
    "plain": like(32, accumulate="none", dtype="fp32"),
    "sums": like(32, accumulate="all", varlen=True),
    "sums_of_dkv": like(32, accumulate="dkv", window_right=0),
    "bias": like(32, accumulate="none", bias="tensor", dbias=True, dtype="fp32", deterministic=True),
    "alibi": like(32, accumulate="none", bias="alibi", dalibi=True, window_right=0, deterministic=True),
    "all_else": like(32, accumulate="dq", mask_shape=(1, 1, 1, 1), softcap=True, dropout=True, window_left=3,
                     window_right=0, sink_tokens=2, varlen=True),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loops(emulator: Emulator, name: str) -> None:
    rng = random.Random(f"{SEED} loops {name}")
    assert wrong(emulator, LoopsSchedule(), *(drawn(rng, LOOPS[name], SMALL) for _ in range(COUNT))) == []
