"""A bad problem is refused by the same rule in C++ as in Python: drawn by a seed, with one or two bad numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cpp import programs
from tests.cpp.test_same_choice import line, problem
from tilewright import ops

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

SEED, COUNT, TARGET = 25, 1500, "x86_64_v3"
TARGETS = (TARGET, "sm_90a", "gfx942", "gfx950")
# What the draw must reach, or it shows nothing.
REACHED = {
    "gemm": {"size-negative", "size-huge", "stride-huge", "stride-short", "layout-name", "epilogue-d-count",
             "dual-operands", "gate-dtype", "dtype-mix", "dtype-output", "dtype-d"},
    "conv": {"size-negative", "size-positive", "size-huge", "padding-negative", "spatial-rank", "stride-rank",
             "groups-divide", "window-fits", "epilogue-name", "epilogue-d-count", "fused-backward", "full-d",
             "dtype-input", "dtype-output", "dtype-d", "stride-overlap"},
    "attention": {"size-negative", "size-positive", "size-huge", "splits", "head-size", "heads-divide", "window",
                  "page-size", "bias-shape", "mask-shape", "dtype-input", "dtype-mix", "dtype-output", "dtype-bias",
                  "stride-overlap"},
}  # fmt: skip
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "int8", "int32")
EPILOGUES = ("PassThrough", "MultiDAdd", "Relu", "Gelu", "SiluAndMul", "GeluAndMul")
HUGE = (1 << 60, 1 << 40, (1 << 40) + 1, (1 << 31) - 1, 1 << 31)


def changed(draw: random.Random, numbers: tuple[int, ...], bad: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers with one in place of another, one too few, or one too many."""
    kind = draw.randrange(8)
    if kind == 0:
        return numbers[:-1]
    if kind == 1:
        return (*numbers, 1)
    at = draw.randrange(len(numbers))
    return (*numbers[:at], draw.choice(bad), *numbers[at + 1 :])


def gemm_change(draw: random.Random, p: Any) -> dict[str, Any]:
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {draw.choice(("m", "n", "k", "batch")): draw.choice((-1, -7, *HUGE))},
        lambda: {draw.choice(("a_stride", "b_stride", "c_stride")): draw.choice((1, 3, -1, *HUGE))},
        lambda: {"layout": draw.choice(("xyz", "rr", "ccc", "rcc", "rrrr", "RCR"))},
        lambda: {"epilogue": draw.choice(EPILOGUES), "num_d": draw.choice((-1, 0, 1, 2, 3))},
        lambda: {"epilogue": "SiluAndMul", "num_d": 0, draw.choice(("beta", "preshuffled")): True},
        lambda: {draw.choice(("dtype_a", "dtype_b", "dtype_c", "dtype_d")): draw.choice(DTYPES)},
    ]
    return draw.choice(kinds)()


def conv_change(draw: random.Random, p: Any) -> dict[str, Any]:
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {draw.choice(("batch", "channels", "filters", "groups")): draw.choice((-1, 0, 3, 1 << 41))},
        lambda: {
            name: changed(draw, getattr(p, name), (-1, 0, 99, 1 << 41))
            for name in (draw.choice(("size", "window", "stride", "dilation", "before", "after")),)
        },
        lambda: {
            name: changed(draw, getattr(p, name), (-1, 0, 1, 1 << 60))
            for name in (draw.choice(("x_strides", "w_strides", "y_strides")),)
        },
        lambda: {"epilogue": draw.choice(EPILOGUES), "num_d": draw.choice((-1, 0, 1, 2, 3))},
        lambda: {"full_d": draw.choice((-1, 1, 2, 3))},
        lambda: {draw.choice(("dtype", "dtype_out", "dtype_d")): draw.choice(DTYPES)},
    ]
    return draw.choice(kinds)()


def attention_change(draw: random.Random, p: Any) -> dict[str, Any]:
    shape = (p.batch, p.heads_q, p.seqlen_q, p.seqlen_k)
    kinds: list[Callable[[], dict[str, Any]]] = [
        lambda: {draw.choice(("batch", "seqlen_q", "seqlen_k", "num_splits")): draw.choice((-1, 129, 1 << 31))},
        lambda: {draw.choice(("heads_q", "heads_kv", "head_dim", "head_dim_v")): draw.choice((-1, 3, 577, 1 << 20))},
        lambda: {draw.choice(("window_left", "window_right")): draw.choice((-2, -100))},
        lambda: {"page_size": draw.choice((-1, 1025, 2000))},
        lambda: {"bias": "tensor", "bias_shape": tuple(size + draw.choice((0, 0, 0, 1)) for size in shape)},
        lambda: {"mask_shape": tuple(size + draw.choice((0, 0, 0, 1)) for size in shape)},
        lambda: {draw.choice(("dtype_q", "dtype_kv", "dtype_out")): draw.choice(DTYPES)},
        lambda: {"bias": "tensor", "bias_shape": shape, "dtype_aux": draw.choice(DTYPES)},
        lambda: {"o_strides": tuple(draw.choice((0, 1, step, 1 << 60)) for step in p.o_strides)},
        lambda: {"q_strides": tuple(draw.choice((step, step, 1 << 60, -(1 << 60))) for step in p.q_strides)},
    ]
    return draw.choice(kinds)()


CHANGES = {"gemm": gemm_change, "conv": conv_change, "attention": attention_change}


def bad_problems(op: str) -> list[Any]:
    draw, problems = random.Random(f"{SEED} {op}"), list[Any]()
    while len(problems) < COUNT:
        one = problem(draw, op, TARGET)
        if op == "attention" and one.family != "forward":  # has fewer fields in C++: test_attention_cache.cpp
            continue
        for _ in range(draw.choice((1, 1, 2))):
            one = replace(one, **CHANGES[op](draw, one))
        problems.append(one)
    return problems


@pytest.mark.parametrize("op", CHANGES)
def test_the_same_rule(op: str, tmp_path: Path) -> None:
    problems = bad_problems(op)
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", tmp_path / "choose")
    answers = programs.call(str(chooser), "check", input="\n".join(map(line, problems)) + "\n").splitlines()
    assert len(answers) == COUNT
    reached: Counter[str] = Counter()
    for each, answer in zip(problems, answers, strict=True):
        wanted = [violation.rule for violation in ops.op(op).problem_violations(each, TARGET)]
        if answer == "fine":  # what one arch has no kernels for, its registry says in C++, by `no-kernel`
            broken = ({one.rule for one in ops.op(op).problem_violations(each, target)} for target in TARGETS)
            everywhere = set.intersection(*broken)
            assert not everywhere, f"{each}\nPython {everywhere} on every target, and C++ takes it"
        else:
            rule = answer.split()[1]
            assert rule in wanted, f"{each}\nPython {wanted}, C++ {rule}"
            reached[rule] += 1
    assert set(reached) >= REACHED[op], f"never drawn: {REACHED[op] - set(reached)}"
