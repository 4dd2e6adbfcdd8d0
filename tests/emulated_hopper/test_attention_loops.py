"""The floor of every GPU on the emulated one: problems of every family and feature by seed."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.attention.drawing import ATTENTION, gapped, kind, problem
from tests.emulated_hopper.attentions import prove
from tests.emulated_hopper.emulator import CHANCE, Emulator, apart


@pytest.mark.parametrize(
    ("seed", "family"), [(0, "forward"), (1, "forward"), (5, "split"), (2, "combine"), (3, "append")]
)
def test_the_loops_are_right(emulator: Emulator, seed: int, family: str) -> None:
    draw = random.Random(seed)
    of = kind(draw, family)
    for number in range(6):
        one = gapped(draw, problem(draw, of))
        spec = ATTENTION.generic_spec(one.signature, "sm_90a")
        assert ATTENTION.supports(spec, one) == []
        kernel = emulator.kernel(spec)
        text = apart(kernel, partial(prove, kernel, one, number), CHANCE, number, 3)
        assert not text, f"{spec.name} {one.describe()}: {text}"


@pytest.mark.parametrize(("q", "kv"), [("bf16", "fp8_e4m3"), ("fp8_e4m3", "")])
def test_rows_go_into_a_narrow_cache(emulator: Emulator, q: str, kv: str) -> None:
    draw = random.Random(q)
    of = {"family": "append", "dtype_q": q, "dtype_kv": kv, "rotary": "interleaved", "pages": "vectorised",
          "lookup": "table"}  # fmt: skip
    for number, scales in enumerate(("none", "head", "block") if kv else ("none",)):
        one = problem(draw, {**of, "scales": scales})
        kernel = emulator.kernel(ATTENTION.generic_spec(one.signature, "sm_90a"))
        text = apart(kernel, partial(prove, kernel, one, number), CHANCE, number, 3)
        assert not text, f"{kernel.name} {one.describe()}: {text}"
