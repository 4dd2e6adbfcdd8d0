"""Attention on the emulated Hopper GPU: every feature and shape of the ws pipeline, on problems drawn by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.emulated_hopper.attentions import KEYS, ROWS, drawn, wrong
from tests.emulated_hopper.emulator import Emulator
from tilewright.backends.cuda.attention.combine import CombineSchedule
from tilewright.backends.cuda.attention.ws import WsSchedule
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.runtime.requests import Sample

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 1211, 9
SHARED = (1, 2, 7, 16, 21), (0, 1, 64, 65, 250, 500, 777, 1100)  # rows and keys of problems that are dealt in shares


def like(head_dim: int, head_dim_v: int = 0, **more: Any) -> AttentionProblem:
    return AttentionProblem(
        1, 1, 1, 1, head_dim, head_dim_v=head_dim_v, **{"dtype_q": "bf16", "return_lse": True, **more}
    )


CASES = {
    "plain": (WsSchedule("ws", 64, 2, 2), like(64)),
    "wide_tiles": (WsSchedule("ws", 176, 2, 2), like(128, window_right=0)),
    "three_warpgroups": (
        WsSchedule("ws", 48, 3, 3, tile_scheduler="dynamic"), like(96, dtype_q="fp16", window_right=0),
    ),
    "heads_apart": (WsSchedule("ws", 96, 2, 2), like(192, 128, window_right=0, dtype_out="fp32")),
    "large_heads": (WsSchedule("ws", 48, 2, 2), like(256)),
    "varlen": (WsSchedule("ws", 64, 2, 2, tile_scheduler="dynamic"), like(64, varlen=True, window_right=0)),
    "sink_tokens": (WsSchedule("ws", 32, 2, 2), like(64, window_left=8, window_right=0, sink_tokens=4, sink=True)),
    "one_warpgroup": (WsSchedule("ws", 64, 1, 2), like(32, return_lse=False)),
    "streamed": (WsSchedule("ws", 48, 2, 2, q_stages=2), like(64)),
    "streamed_packed": (WsSchedule("ws", 32, 3, 3, 1, "dynamic", 2), like(64, varlen=True, window_right=0, sink=True)),
    "streamed_scores": (
        WsSchedule("ws", 32, 2, 2, 1, "dynamic", 2),
        like(32, window_left=8, window_right=0, sink_tokens=4, softcap=True, dropout=True),
    ),
    "scores": (WsSchedule("ws", 64, 2, 2), like(64, softcap=True, bias="alibi", window_right=0)),
    "mask_and_bias": (WsSchedule("ws", 48, 2, 2), like(64, bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16")),
    "dropout": (WsSchedule("ws", 48, 2, 2), like(64, dropout=True)),
    "decode": (WsSchedule("decode", 64, 1, 2, 2), like(128, window_right=0, align="bottom_right")),
    "decode_packed": (WsSchedule("decode", 64, 1, 2), like(64, varlen=True, dropout=True, window_right=0)),
    "split": (
        WsSchedule("decode", 32, 1, 2, tile_scheduler="dynamic"), like(64, family="split", num_splits=2, sink=True),
    ),
    "combine": (CombineSchedule(4), like(128, family="combine", num_splits=2, dtype_out="bf16")),
    "combine_alone": (CombineSchedule(1), like(64, family="combine", num_splits=2, dtype_out="bf16")),
    "combine_packed": (CombineSchedule(2), like(192, family="combine", num_splits=2, varlen=True)),
    "shares": (WsSchedule("decode_stream_k", 32, 1, 2, 2), like(64, sink=True)),
    "shares_of_windows": (
        WsSchedule("decode_stream_k", 32, 1, 2),
        like(128, window_left=70, window_right=0, sink_tokens=4, dtype_out="fp32"),
    ),
    "shares_packed": (WsSchedule("decode_stream_k", 16, 1, 2), like(64, varlen=True, dropout=True, window_right=0)),
    "shares_of_pages": (
        WsSchedule("decode_stream_k", 16, 1, 2, 2), like(64, pages="strided", page_lookup="table", seqlens_k=True,
                                                return_lse=False),
    ),
    "pages": (WsSchedule("decode", 64, 1, 2), like(64, pages="strided", page_lookup="table", seqlens_k=True)),
    "prefill_from_pages": (
        WsSchedule("ws", 64, 2, 2),
        like(64, pages="strided", page_lookup="indices", varlen=True, window_right=0),
    ),
}  # fmt: skip


def problems(name: str, first: AttentionProblem) -> list[AttentionProblem]:
    rng = random.Random(f"{SEED} {name}")
    found: list[AttentionProblem] = []
    while len(found) < COUNT:
        one = drawn(rng, first, SHARED if name.startswith("shares") else (ROWS, KEYS))
        if not problem_violations(one) and one.signature == first.signature and one.seqlen_q * one.heads_q < 500:
            found.append(one)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_problems_drawn_by_seed(emulator: Emulator, name: str) -> None:
    schedule, first = CASES[name]
    assert wrong(emulator, schedule, *problems(name, first)) == []


def test_strides_of_every_kind(emulator: Emulator) -> None:
    """Heads outside of rows, gaps between rows, one sequence only."""
    one = like(64)
    outer = replace(
        one, batch=2, heads_q=2, heads_kv=2, seqlen_q=70, seqlen_k=90, q_strides=(9216, 64, 4608), o_strides=()
    )
    gaps = replace(outer, q_strides=(), k_strides=(90 * 144, 144, 72), v_strides=(90 * 160, 160, 80))
    assert wrong(emulator, WsSchedule("ws", 64, 2, 2), outer, gaps) == []


@pytest.mark.parametrize(
    "schedule", [WsSchedule("ws", 32, 2, 2, tile_scheduler="dynamic"), WsSchedule("decode", 32, 1, 2)]
)
def test_many_sequences_that_differ(emulator: Emulator, schedule: WsSchedule) -> None:
    """More than a warp has lanes, in no order of length; some have no rows, some no keys, none is forgotten."""
    made = replace(
        like(32, varlen=True, window_right=0), batch=70, heads_q=2, heads_kv=1, seqlen_q=100, seqlen_k=90,
        total_q=1500, total_k=1300, q_strides=(), k_strides=(), v_strides=(), o_strides=(),
    )  # fmt: skip
    assert wrong(emulator, schedule, made, replace(made, batch=33, align="bottom_right"), replace(made, batch=32)) == []


@pytest.mark.parametrize(
    "schedule",
    [WsSchedule("ws", 32, 2, 2, tile_scheduler="dynamic"), WsSchedule("ws", 32, 2, 2, 1, "static", 2),
     WsSchedule("decode", 32, 1, 2)],
)  # fmt: skip
def test_rows_that_are_padded(emulator: Emulator, schedule: WsSchedule) -> None:
    """Tiles behind the rows of a sequence are left out, those of others are not: some have no rows at all."""
    made = replace(
        like(32, window_right=0), batch=9, heads_q=2, heads_kv=1, seqlen_q=150, seqlen_k=90, seqlens_q=True,
        seqlens_k=True, q_strides=(), k_strides=(), v_strides=(), o_strides=(),
    )  # fmt: skip
    assert wrong(emulator, schedule, made, replace(made, align="bottom_right"), multiprocessors=3) == []


def test_shares_of_many_sequences_that_differ(emulator: Emulator) -> None:
    """More than a warp has lanes; some have no rows, some no keys; more blocks than work, and far fewer."""
    dense: dict[str, Any] = {"q_strides": (), "k_strides": (), "v_strides": (), "o_strides": ()}
    packed = like(32, varlen=True, window_right=0, align="bottom_right")
    made = replace(
        packed, batch=70, heads_q=6, heads_kv=2, seqlen_q=20, seqlen_k=90, total_q=700, total_k=2500, **dense
    )
    padded = replace(
        like(32), batch=37, heads_q=3, heads_kv=1, seqlen_q=2, seqlen_k=300, seqlens_k=True, seqlens_q=True, **dense
    )
    schedule = WsSchedule("decode_stream_k", 16, 1, 2, 2)
    assert wrong(emulator, schedule, made, replace(made, batch=33, total_q=400), multiprocessors=7) == []
    assert wrong(emulator, schedule, padded, replace(padded, batch=1, seqlen_k=900), multiprocessors=21) == []


def test_pieces_put_together_before_all_are_there_are_found(emulator: Emulator) -> None:
    from tests.emulated_hopper.attentions import ATTENTION, prove
    from tests.emulated_hopper.emulator import LATE, apart
    from tilewright.ops import KernelSpec

    one = replace(
        like(64),
        heads_q=4,
        heads_kv=2,
        seqlen_q=3,
        seqlen_k=900,
        q_strides=(),
        k_strides=(),
        v_strides=(),
        o_strides=(),
    )
    spec = KernelSpec("attention", one.signature, WsSchedule("decode_stream_k", 32, 1, 2), "sm_90a")
    assert ATTENTION.supports(spec, one) == []
    turned = ("if (pieces.last())", "if (!pieces.last())")
    early = emulator.kernel(spec, lambda text: text.replace(*turned), "early", "cuda/attention/ws/kernel.h")
    assert apart(early, lambda: prove(early, one), LATE, 0, 5) != ""


@pytest.mark.parametrize("warps", [1, 4])
def test_parts_that_are_no_numbers_are_none_together(emulator: Emulator, warps: int) -> None:
    """All parts of one row, a part of another; of a third nothing was seen in any."""
    from tests.emulated_hopper.attentions import prove
    from tests.emulated_hopper.emulator import EAGER, apart
    from tilewright.ops import KernelSpec
    from tilewright.runtime.bindings.attention import samples

    one = replace(
        like(64, family="combine", num_splits=11, dtype_out="bf16"), heads_q=2, heads_kv=2, seqlen_q=3, seqlen_k=9
    )
    one = replace(one, q_strides=(), k_strides=(), v_strides=(), o_strides=())

    def broken(made: Sample) -> Sample:
        operands = list(made.operands)
        parts, lse = (samples.NAMES.index(name) for name in ("given_parts", "given_lse"))
        operands[parts], operands[lse] = operands[parts].copy(), operands[lse].copy()
        operands[parts][:, 0, 0, 1], operands[lse][:, 0, 1, 0] = np.nan, np.nan
        operands[parts][4, 0, 1, 0], operands[lse][4, 0, 0, 1] = np.nan, np.nan
        operands[parts][:, 0, 2, 1], operands[lse][:, 0, 1, 2] = 0, -np.inf
        return replace(made, operands=tuple(operands))

    kernel = emulator.kernel(KernelSpec("attention", one.signature, CombineSchedule(warps), "sm_90a"))
    assert apart(kernel, lambda: prove(kernel, one, 0, broken), EAGER, 0, 2) == ""


@pytest.mark.sampled(1)
def test_a_change_to_the_registers_of_a_product_in_flight_is_found(emulator: Emulator) -> None:
    """Weights are read by wgmma after it was issued: rounding the next ones too early must show."""
    from tests.emulated_hopper.attentions import ATTENTION, prove
    from tests.emulated_hopper.emulator import LATE, apart
    from tilewright.ops import KernelSpec

    one = replace(like(64), seqlen_q=70, seqlen_k=200)
    spec = KernelSpec("attention", one.signature, WsSchedule("ws", 64, 2, 2), "sm_90a")
    assert ATTENTION.supports(spec, one) == []

    def early(text: str) -> str:
        given, waits = "give_turn();\n    ", "wgmma_wait<1>();"
        return text.replace(given + waits, f"{given}p[0][0] ^= 1;\n    {waits}")

    kernel = emulator.kernel(spec, early, "early", "cuda/attention/ws/kernel.h")
    assert "registers of a wgmma were changed" in apart(kernel, lambda: prove(kernel, one), LATE, 0, 2)
