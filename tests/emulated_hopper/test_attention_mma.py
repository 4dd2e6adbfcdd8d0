"""Attention by the mma pipeline on emulated GPUs: every feature and shape, on problems drawn by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.emulated_hopper.attentions import KEYS, ROWS, drawn, prove, wrong
from tests.emulated_hopper.emulator import CHANCE, Emulator, apart
from tests.emulated_hopper.test_attention import like
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.runtime.bindings.attention import samples
from tilewright.runtime.requests import Sample

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 1312, 5
FP8 = {"dtype_q": "fp8_e4m3", "dtype_kv": "fp8_e4m3"}


def fp8(head: int, head_dim_v: int = 0, **more: Any) -> AttentionProblem:
    return like(head, head_dim_v, **{**FP8, "dtype_out": "bf16", **more})


def mma(keys: int, rows: int, along: int, blocks: int = 1, slots: int = 2, pipeline: str = "mma") -> MmaSchedule:
    return MmaSchedule(pipeline, keys, rows, along, blocks, slots)


def decode(keys: int, rows: int, along: int, blocks: int = 1, slots: int = 3) -> MmaSchedule:
    return mma(keys, rows, along, blocks, slots, "mma_decode")


CASES: dict[str, tuple[MmaSchedule, AttentionProblem, str]] = {
    "plain": (mma(64, 4, 1, 2, 4), like(64), "sm_80"),
    "heads_apart": (mma(32, 2, 1), like(192, 128, window_right=0, dtype_out="fp32"), "sm_90a"),
    "varlen": (mma(64, 2, 1, 2, 3), like(64, varlen=True, window_right=0), "sm_80"),
    "sink_tokens": (mma(32, 2, 1), like(64, window_left=8, window_right=0, sink_tokens=4, sink=True), "sm_80"),
    "scores": (mma(48, 2, 1), like(64, softcap=True, bias="alibi", window_right=0), "sm_80"),
    "mask_and_bias": (mma(32, 2, 2), like(64, bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16"), "sm_80"),
    "decode": (decode(64, 1, 4), like(128, window_right=0, align="bottom_right"), "sm_80"),
    "decode_packed": (decode(32, 1, 2), like(64, varlen=True, dropout=True, window_right=0), "sm_80"),
    "split": (decode(32, 1, 2), like(96, family="split", num_splits=2, sink=True), "sm_80"),
    "mla": (decode(32, 1, 4), like(576, 512, return_lse=False), "sm_90a"),
    "pages": (decode(64, 1, 4), like(64, pages="strided", page_lookup="table", seqlens_k=True), "sm_80"),
    "prefill_from_pages": (
        mma(64, 2, 1), like(64, pages="strided", page_lookup="indices", varlen=True, window_right=0), "sm_80",
    ),
    "vectorised": (decode(64, 1, 2), like(64, pages="vectorised", page_lookup="table", seqlens_k=True), "sm_90a"),
    "vectorised_fp8": (
        decode(64, 1, 2),
        fp8(64, pages="vectorised", page_lookup="table", seqlens_k=True, q_scale="tensor", kv_scales="head"), "sm_90a",
    ),
    "fp8": (mma(32, 2, 1, 2), fp8(96, 64, window_right=0), "sm_80"),
    "fp8_scales_of_blocks": (decode(64, 1, 4), fp8(64, q_scale="block", kv_scales="block", scale_block=24), "sm_90a"),
    "fp8_keys": (decode(64, 1, 4), like(128, dtype_kv="fp8_e4m3", kv_scales="head"), "sm_90a"),
    "fp8_keys_of_blocks": (
        mma(32, 2, 1), like(64, dtype_kv="fp8_e4m3", kv_scales="block", scale_block=24), "sm_80",
    ),
    "fp8_keys_of_bf16": (decode(32, 1, 2, slots=2), like(96, dtype_kv="fp8_e4m3", softcap=True, bias="alibi"), "sm_80"),
    "fp8_keys_of_fp16": (decode(32, 1, 2), like(64, dtype_q="fp16", dtype_kv="fp8_e4m3", family="split", num_splits=2,
                         pages="strided", page_lookup="table", seqlens_k=True, kv_scales="tensor"), "sm_80"),
}  # fmt: skip


def problems(
    name: str,
    first: AttentionProblem,
    sizes: tuple[tuple[int, ...], tuple[int, ...]] = (ROWS, KEYS),
    most: float = 3e7,
    whole: int = 1,
) -> list[AttentionProblem]:
    """Problems of a signature by seed, with heads of whole so many elements."""
    rng = random.Random(f"{SEED} {name}")
    found: list[AttentionProblem] = []
    while len(found) < COUNT:
        one = drawn(rng, first, sizes)
        if first.pages == "vectorised":
            one = replace(one, page_size=rng.choice((16, 32, 48)), page_count=0, head_dim=first.head_dim,
                          k_strides=(), v_strides=())  # fmt: skip
        heads = {one_head: -(-getattr(one, one_head) // whole) * whole for one_head in ("head_dim", "head_dim_v")}
        one = replace(one, **heads, q_strides=(), k_strides=(), v_strides=(), o_strides=())
        if one.flops < most and not problem_violations(one) and one.signature == first.signature:
            found.append(one)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_problems_drawn_by_seed(emulator: Emulator, name: str) -> None:
    schedule, first, arch = CASES[name]
    assert wrong(emulator, schedule, *problems(name, first), arch=arch) == []


def test_strides_of_every_kind(emulator: Emulator) -> None:
    """What TMA does not read: odd strides and heads, addresses of two bytes."""
    one = replace(like(64), batch=2, heads_q=2, heads_kv=2, seqlen_q=33, seqlen_k=70, head_dim=60, head_dim_v=59)
    odd = replace(
        one, q_strides=(33 * 131, 131, 65), k_strides=(70 * 150, 75, 5257), v_strides=(70 * 127, 127, 61),
        o_strides=(33 * 133, 133, 61),
    )  # fmt: skip
    few = replace(odd, q_strides=(), k_strides=(), v_strides=(), o_strides=(), head_dim=57, head_dim_v=33)
    assert wrong(emulator, mma(32, 2, 1), odd, few, arch="sm_80") == []


def test_a_latent_is_read_once(emulator: Emulator) -> None:
    """Values that are the first elements of their keys: nothing is read at the place of v but k itself."""
    one = replace(
        like(576, 512), batch=2, heads_q=16, heads_kv=1, seqlen_q=2, seqlen_k=100, q_strides=(), o_strides=(),
        k_strides=(100 * 576, 576, 576), v_strides=(100 * 576, 576, 576),
    )  # fmt: skip
    spec = KernelSpec("attention", one.signature, decode(32, 1, 4), "sm_90a")
    kernel = emulator.kernel(spec)

    def inside(made: Sample) -> Sample:
        q, k, _, *others = made.operands
        return replace(made, operands=(q, k, k[..., :512], *others))

    assert apart(kernel, lambda: prove(kernel, one, 0, inside, {"v": "k"}), CHANCE, 0, 2) == ""


def test_a_byte_that_is_no_number_spreads(emulator: Emulator) -> None:
    """NaN of e4m3 in a key and in a value, with both types it is widened to."""
    for dtype_q in ("bf16", "fp16"):
        one = AttentionProblem(1, 2, 3, 40, 64, dtype_q=dtype_q, dtype_kv="fp8_e4m3")

        def broken(made: Sample) -> Sample:
            _, k, v, *_ = made.operands
            k[0, 7, 0, 5], v[0, 9, 1, 11] = np.nan, np.nan
            return made

        kernel = emulator.kernel(KernelSpec("attention", one.signature, decode(32, 1, 2), "sm_90a"))
        assert apart(kernel, partial(prove, kernel, one, 0, broken), CHANCE, 0, 2) == ""


@pytest.mark.parametrize("pages", ["strided", "vectorised"])
def test_pages_that_do_not_exist_are_zeros(emulator: Emulator, pages: str) -> None:
    """Whatever a table holds, no memory outside of the pool is read: by 16 bytes, by elements, by columns."""
    one = replace(
        like(64, pages=pages, page_lookup="table", seqlens_k=True), batch=2, seqlen_q=2, seqlen_k=100, page_size=16
    )
    dense: dict[str, Any] = {"q_strides": (), "k_strides": (), "v_strides": (), "o_strides": (), "page_count": 0}
    one = replace(one, heads_q=4, heads_kv=2, **dense)
    odd = replace(one, head_dim=60, head_dim_v=59, **dense) if pages == "strided" else one

    def zeros(made: Sample) -> Sample:
        q, k, v, *others = made.operands
        k, v, (pages, _) = k.copy(), v.copy(), table_of(made)
        for page in pages:
            k[page], v[page] = 0, 0
        return replace(made, operands=(q, k, v, *others))

    def astray(made: Sample) -> Sample:
        operands, (_, wrong_table) = list(made.operands), table_of(made)
        operands[samples.NAMES.index("block_table")] = wrong_table
        return replace(made, operands=tuple(operands))

    def table_of(made: Sample) -> tuple[list[int], Any]:
        """Pages that are left out, and the table without them."""
        table = made.operands[samples.NAMES.index("block_table")].copy()
        places = [(b, p) for b in range(2) for p in range(table.shape[1]) if table[b, p] >= 0][::2]
        left_out = [int(table[place]) for place in places]
        for number, place in enumerate(places):
            table[place] = (2**31 - 1, -1, len(made.operands[1]), -(2**31))[number % 4]
        assert len(places) >= 4
        return left_out, table

    for number, problem in enumerate((one, odd)):
        spec = KernelSpec("attention", problem.signature, decode(64, 1, 4), "sm_80")
        kernel = emulator.kernel(spec)
        run = partial(prove, kernel, problem, number, change=zeros, given=astray)
        assert apart(kernel, run, CHANCE, number, 2) == ""
