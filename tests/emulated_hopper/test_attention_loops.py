"""The floor of every GPU on the emulated one: problems of every family and feature by seed."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION, gapped, kind, problem
from tests.emulated_hopper.attentions import called, prove
from tests.emulated_hopper.emulator import CHANCE, Emulator, apart
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.bindings.attention import samples
from tilewright.runtime.loader import Kernel

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("seed", "family"), [(0, "forward"), (1, "forward"), (5, "split"), (2, "combine"), (3, "append")]
)
def test_the_loops_are_right(emulator: Emulator, seed: int, family: str) -> None:
    draw = random.Random(seed)
    of = kind(draw, family)
    for number in range(6):
        one = gapped(draw, problem(draw, of))
        spec = ATTENTION.fallback_spec(one.signature, "sm_90a")
        assert ATTENTION.supports(spec, one) == []
        kernel = emulator.kernel(spec)
        text = apart(kernel, partial(prove, kernel, one, number), CHANCE, number, 3)
        assert not text, f"{spec.name} {one.describe()}: {text}"


@pytest.mark.parametrize(("q", "kv"), [("bf16", "fp8_e4m3"), ("fp8_e4m3", "")])
def test_rows_go_into_a_narrow_cache(emulator: Emulator, q: str, kv: str) -> None:
    draw = random.Random(q)
    of = {"family": "append", "dtype_q": q, "dtype_kv": kv, "rotary": "interleaved", "pages": "vectorised",
          "page_lookup": "table"}  # fmt: skip
    for number, scales in enumerate(("none", "head", "block") if kv else ("none",)):
        one = problem(draw, {**of, "scales": scales})
        kernel = emulator.kernel(ATTENTION.fallback_spec(one.signature, "sm_90a"))
        text = apart(kernel, partial(prove, kernel, one, number), CHANCE, number, 3)
        assert not text, f"{kernel.name} {one.describe()}: {text}"


def _nothing_is_written(kernel: Kernel, one: AttentionProblem, name: str, value: int) -> None:
    made = samples.sample(one, 0)
    operands: dict[str, Any] = dict(zip(samples.NAMES, made.operands, strict=True))
    operands[name][...] = value
    before = {at: operands[at].tobytes() for at in ("cache_k", "cache_v")}
    after = dict(zip(samples.NAMES, called(kernel, one, made).operands, strict=True))
    assert all(after[at].tobytes() == before[at] for at in before), "a row went into the cache all the same"


@pytest.mark.parametrize(
    ("pages", "name", "value"),
    [("none", "cache_seqlens", 40), ("none", "cache_seqlens", -30), ("strided", "cache_seqlens", 1000),
     ("strided", "block_table", -1), ("strided", "block_table", 1 << 20),
     ("vectorised", "block_table", 1 << 20), ("rotary", "cache_seqlens", 25)],
)  # fmt: skip
def test_rows_that_have_no_place_are_not_written(emulator: Emulator, pages: str, name: str, value: int) -> None:
    """Tables on a GPU are believed; memory of somebody else is safe from them all the same."""
    of: dict[str, Any] = {
        "batch": 2,
        "heads_q": 2,
        "seqlen_q": 3,
        "seqlen_k": 24,
        "head_dim": 16,
        "heads_kv": 1,
        "head_dim_v": 16,
    }
    of |= {"family": "append", "seqlens_k": True}
    if pages == "rotary":
        of |= {"rotary": "half", "rotary_dim": 8, "rotary_q": True}
    elif pages != "none":
        of |= {"pages": pages, "page_lookup": "table", "page_size": 8}
    one = AttentionProblem(**of)
    kernel = emulator.kernel(ATTENTION.fallback_spec(one.signature, "sm_90a"))
    text = apart(kernel, partial(_nothing_is_written, kernel, one, name, value), CHANCE, 1, 3)
    assert not text, f"{kernel.name} {one.describe()}: {text}"
