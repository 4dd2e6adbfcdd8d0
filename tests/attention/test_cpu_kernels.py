"""The CPU's tiled and decode kernels at every ISA level, on problems drawn by seed, against float64.

Tiles are small, so that problems of a few rows and keys have several of them.  Results, scratch memory and what lies
behind a sequence are poisoned (harness.py).
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.attention import harness
from tests.attention.drawing import ATTENTION, Kind, gapped, problem
from tests.attention.harness import BINDING, Fenced, prove
from tests.backends.cpu.gemm.fenced_pages import Pages
from tests.backends.cpu.gemm.harness import POISON
from tests.built import Built, why_not_run
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cpu.attention.decode import CpuDecodeSchedule
from tilewright.backends.cpu.attention.tiled import CpuTiledSchedule
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel
from tilewright.runtime.requests import Sample

pytestmark = pytest.mark.usefixtures("needs_compiler")

PROBLEMS = 10
# Heads that are whole vectors and such that are not, all of one signature.
HEADS = (40, 48, 56, 57, 64)


def schedule(pipeline: str, arch_name: str) -> Any:
    """A small one: two vectors of rows, few keys."""
    arch = arch_by_name(arch_name)
    width = lanes(arch)
    if pipeline == "decode":
        return CpuDecodeSchedule((min(8, width), 2 * width))
    return CpuTiledSchedule((4 * width, 16), (2 * width, 8 if arch.vector_registers > 16 else 4))


# Pipeline, ISA level, and the seed of what the kernel has (drawing.kind); together they have both pipelines at every
# level, every element type, and every feature somewhere: a test below says so.
CASES: tuple[tuple[str, str, Kind], ...] = (
    ("tiled", "x86_64_v4", {"dtype_q": "fp32", "mask": "window"}),
    ("tiled", "x86_64_v4", {"dtype_q": "fp32", "mask": "generic", "bias": "tensor", "masked": True, "sink": True}),
    ("tiled", "x86_64_v4_bf16", {"dtype_q": "bf16", "mask": "window", "pages": "strided", "page_lookup": "table"}),
    ("tiled", "x86_64_v4_bf16", {"dtype_q": "bf16", "dtype_out": "fp32", "softcap": True, "varlen": True}),
    ("tiled", "x86_64_v3", {"dtype_q": "fp16", "mask": "generic", "bias": "alibi", "varlen": True}),
    ("tiled", "x86_64_v3", {"dtype_q": "bf16", "dtype_kv": "fp8_e4m3", "pages": "strided", "page_lookup": "indices"}),
    ("tiled", "generic", {"dtype_q": "fp32", "mask": "window", "bias": "tensor", "softcap": True}),
    ("decode", "x86_64_v4", {"dtype_q": "fp32", "pages": "strided", "page_lookup": "table", "mask": "window"}),
    ("decode", "x86_64_v4", {"dtype_q": "fp16", "bias": "tensor", "dtype_aux": "fp16", "masked": True}),
    ("decode", "x86_64_v4_bf16", {"dtype_q": "bf16", "mask": "generic", "sink": True, "varlen": True}),
    ("decode", "x86_64_v3", {"dtype_q": "bf16", "bias": "alibi", "pages": "strided", "page_lookup": "indices"}),
    ("decode", "generic", {"dtype_q": "fp32", "dtype_out": "bf16", "mask": "generic", "bias": "alibi"}),
)  # fmt: skip
PLAIN: Kind = {"family": "forward", "dtype_kv": "", "dtype_out": "", "mask": "none", "bias": "none", "masked": False,
               "softcap": False, "sink": False, "varlen": False}  # fmt: skip


def first(has: Kind) -> AttentionProblem:
    return problem(random.Random(0), whole(has), HEADS)


def whole(has: Kind) -> Kind:
    found = {**PLAIN, **has}
    return {**found, "dtype_kv": found["dtype_kv"] or found["dtype_q"]}


SPECS = [KernelSpec("attention", first(has).signature, schedule(pipeline, arch), arch) for pipeline, arch, has in CASES]


@pytest.fixture(scope="module")
def built() -> Built:
    return Built(SPECS)


def resized(one: AttentionProblem, **sizes: int) -> AttentionProblem:
    """The problem with other sizes, all of its memory dense."""
    bare = replace(one.dense(), total_q=0, total_k=0, page_count=0, bias="none", bias_shape=(), mask_shape=(),
                   **sizes)  # type: ignore[arg-type]  # fmt: skip
    full = (bare.batch, bare.heads_q, bare.seqlen_q, bare.seqlen_k)
    shapes = {
        name: tuple(size if old > 1 else 1 for size, old in zip(full, shape, strict=True))
        for name in ("bias_shape", "mask_shape") if (shape := getattr(one, name))
    }  # fmt: skip
    strides = {f"{name}_strides": () for name in "qkvo"}
    return replace(bare, bias=one.bias, **shapes, **strides)  # type: ignore[arg-type]


def drawings(spec: KernelSpec, has: Kind, count: int = PROBLEMS) -> Iterator[AttentionProblem]:
    """Problems of the kind that the kernel is for; some are long enough for parts of the keys."""
    found, seed = 0, 0
    while found < count:
        seed += 1
        draw = random.Random(seed)
        one = problem(draw, whole(has), HEADS)
        one = (
            resized(one, seqlen_q=draw.choice((1, 1, 2, 5)), seqlen_k=1100)
            if draw.random() < 0.4
            else gapped(draw, one)
        )
        if not ATTENTION.problem_violations(one, spec.arch) and not ATTENTION.supports(spec, one):
            found += 1
            yield one


@pytest.mark.parametrize(
    ("spec", "case"), list(zip(SPECS, CASES, strict=True)), ids=[f"{a}-{b}-{n}" for n, (a, b, _) in enumerate(CASES)]
)
def test_it_computes_what_float64_computes(spec: KernelSpec, case: tuple[str, str, Kind], built: Built) -> None:
    assert not ATTENTION.check(spec)
    kernel = built[spec]
    for number, one in enumerate(drawings(spec, case[2])):
        prove(kernel, one, number, 1 + number % 3)


# Sequences enough, or keys enough, that heads of keys which lie side by side are walked together; with one row, with a
# few, with more than lanes and with more than two vectors of them; odd numbers of heads, and blocks that end early.
TOGETHER = (
    {"batch": 27, "heads_kv": 5, "heads_q": 5, "seqlen_q": 1, "seqlen_k": 70},
    {"batch": 1, "heads_kv": 3, "heads_q": 6, "seqlen_q": 1, "seqlen_k": 6200},
    {"batch": 25, "heads_kv": 2, "heads_q": 14, "seqlen_q": 1, "seqlen_k": 19},
    {"batch": 13, "heads_kv": 3, "heads_q": 6, "seqlen_q": 7, "seqlen_k": 600},
    {"batch": 24, "heads_kv": 7, "heads_q": 21, "seqlen_q": 17, "seqlen_k": 33},
)


@pytest.mark.parametrize("case", [number for number, one in enumerate(CASES) if one[0] == "decode"])
def test_heads_that_lie_side_by_side_are_walked_together(case: int, built: Built) -> None:
    spec, has = SPECS[case], CASES[case][2]
    kernel, looked = built[spec], 0
    for number, sizes in enumerate(TOGETHER):
        one = resized(next(drawings(spec, has)), **sizes)
        if not ATTENTION.problem_violations(one, spec.arch) and not ATTENTION.supports(spec, one):
            prove(kernel, one, number, 2)
            looked += 1
    assert looked == len(TOGETHER)


class Guarded(Fenced):
    """An operand between two pages nobody may touch, against one of them."""

    def __init__(self, operand: Any, at_end: bool) -> None:
        steps = tuple(one // operand.itemsize for one in operand.strides)
        low, high = (int(operand.ctypes.data) + one for one in extent(operand.shape, steps, operand.itemsize))
        self.size = high - low
        self.memory, self.start = Pages(at_end)(self.size, operand.itemsize)
        self.memory[:] = POISON
        self.memory[self.start : self.start + self.size] = np.ctypeslib.as_array(
            (ctypes.c_uint8 * self.size).from_address(low)
        )
        offset = self.start + (int(operand.ctypes.data) - low if self.size else 0)
        self.view = np.ndarray(operand.shape, operand.dtype, self.memory.data, offset, operand.strides)
        self.before = self.memory.copy()


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_beyond_an_operand_is_read(at_end: bool, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads written in assembly are seen here, which sanitizers do not instrument."""
    monkeypatch.setattr(harness, "Fenced", partial(Guarded, at_end=at_end))
    for spec, case in zip(SPECS, CASES, strict=True):
        if why_not_run(spec.arch):
            continue
        for number, one in enumerate(drawings(spec, case[2], 5)):
            prove(built[spec], one, number)


def outcome(kernel: Kernel, one: AttentionProblem, made: Sample, threads: int) -> bytes:
    samples.poison_results(BINDING, made)
    samples.runner(BINDING, kernel, one, made, device(HOST), threads)()
    return b"".join(made.operands[NAMES.index(name)].tobytes() for name in ("out", "lse"))


NAMES = [slot.name for slot in BINDING.slots]


@pytest.mark.parametrize("case", [0, 2, 7, 9])
def test_the_result_is_the_same_on_any_number_of_threads(case: int, built: Built) -> None:
    """Keys in parts and rows in sets follow from the problem, not from who is there to compute them."""
    spec, has = SPECS[case], CASES[case][2]
    kernel = built[spec]
    several = 0
    for number, one in enumerate(drawings(spec, has)):
        made = BINDING.sample(one, number)
        found = {outcome(kernel, one, made, threads) for threads in (1, 2, 3, 8)}
        assert len(found) == 1, one.describe()
        several += one.seqlen_k > 1024
    assert several, "some problem has keys enough for parts"


@pytest.mark.parametrize("case", [0, 1, 3, 8, 9])
def test_a_value_that_nobody_sees_does_not_count(case: int, built: Built) -> None:
    """Infinity and NaN in values reach the rows that see them, and no others: 0 times infinity is no number."""
    spec, has = SPECS[case], CASES[case][2]
    kernel, draw, looked = built[spec], random.Random(5), 0
    for number, one in enumerate(one.dense() for one in drawings(spec, has)):
        made = BINDING.sample(one, number)
        values = made.operands[NAMES.index("v")]
        flat = values.reshape(-1, *values.shape[-2:])
        if not len(flat):
            continue
        for place, value in ((0, np.inf), (len(flat) // 2, -np.inf), (len(flat) - 1, np.nan)):
            flat[place, :, draw.randrange(values.shape[-1])] = value
        outcome(kernel, one, made, 2)
        check = BINDING.check(one, made)
        assert check.ok, f"{one.describe()}: {check.detail}"
        looked += 1
    assert looked > PROBLEMS // 2


@pytest.mark.parametrize("case", range(len(SPECS)))
def test_a_key_of_infinity_is_what_float64_makes_of_it(case: int, built: Built) -> None:
    """A score of minus infinity weighs nothing, also where a kernel fills a query up with zeros beside the key."""
    spec, has = SPECS[case], CASES[case][2]
    draw, looked = random.Random(7), 0
    for number, one in enumerate(one.dense() for one in drawings(spec, has)):
        made = BINDING.sample(one, number)
        keys = made.operands[NAMES.index("k")]
        flat = keys.reshape(-1, *keys.shape[-2:])
        if not len(flat):
            continue
        flat[draw.randrange(len(flat)), :, draw.randrange(keys.shape[-1])] = draw.choice((np.inf, -np.inf))
        outcome(built[spec], one, made, 2)
        check = BINDING.check(one, made)
        assert check.ok, f"{one.describe()}: {check.detail}"
        looked += 1
    assert looked > PROBLEMS // 2


def test_a_decode_kernel_refuses_many_rows_in_c_and_here(built: Built) -> None:
    spec = next(one for one in SPECS if one.schedule.pipeline == "decode" and not why_not_run(one.arch))
    has = CASES[SPECS.index(spec)][2]
    for rows in (16, 17):
        one = replace(next(drawings(spec, has)).dense(), heads_q=4, heads_kv=1, seqlen_q=rows, bias_shape=(),
                      mask_shape=(),
                      bias="none", q_strides=(), k_strides=(), v_strides=(), o_strides=(), page_count=0)  # fmt: skip
        (stage,) = BINDING.dense(one).stages
        refused = built[spec].refusal(stage.args)
        said = [why.rule for why in ATTENTION.supports(replace(spec, signature=one.signature), one)]
        assert bool(refused) == (said == ["cpu-rows"]) == (rows > 16), refused


def test_the_drawings_have_what_they_promise() -> None:
    """So that the proofs above are no proofs of easy problems."""
    found = [one for spec, case in zip(SPECS, CASES, strict=True) for one in drawings(spec, case[2])]
    assert any(one.seqlen_k > 1024 and one.batch * one.heads_kv < 48 for one in found), "parts of the keys"
    assert any(one.seqlen_q > 64 and one.heads_q > one.heads_kv for one in found), "several tiles of a group"
    assert any(one.head_dim % 8 and one.head_dim_v != one.head_dim for one in found)
    assert any(one != one.dense() for one in found)
    assert any(one.window_left >= 0 and one.sink_tokens for one in found)
    assert any(one.seqlen_k == 0 and one.seqlen_q for one in found)
    assert {spec.arch for spec in SPECS} >= {"generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_bf16"}
