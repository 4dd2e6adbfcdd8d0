"""The floor against float64: problems of every kind by seed, on the plain target and on this machine's best."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.attention.drawing import ATTENTION, gapped, kind, problem
from tests.attention.harness import BINDING, prove
from tilewright.arch import best_host_arch
from tilewright.dispatch.kernels import kernel
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime import samples
from tilewright.runtime.devices import HOST, device

pytestmark = pytest.mark.usefixtures("needs_compiler")

SEEDS = range(12)
OTHER = range(100, 106)


def _prove_seed(seed: int, arch: str) -> None:
    draw = random.Random(seed)
    of = kind(draw)
    drawn = [gapped(draw, problem(draw, of)) for _ in range(8)]
    for index, one in enumerate(drawn):
        assert not ATTENTION.problem_violations(one, arch), one
        floor = ATTENTION.fallback_spec(one.signature, arch)
        assert not ATTENTION.check(floor)
        assert not ATTENTION.supports(floor, one)
        prove(kernel(floor), one, seed, 1 + index % 2)


@pytest.mark.parametrize(("q", "kv", "pages"), [("bf16", "fp8_e4m3", "vectorised"), ("fp32", "fp8_e4m3", "strided"),
                                                ("fp8_e4m3", "", "none")])  # fmt: skip
def test_rows_go_into_a_narrow_cache(q: str, kv: str, pages: str) -> None:
    """Over scales of every kind, whatever finds the pages; new rows of the cache's type as they are."""
    of = {"family": "append", "dtype_q": q, "dtype_kv": kv, "rotary": "half", "pages": pages}
    of["page_lookup"] = "none" if pages == "none" else "table"
    draw = random.Random(q)
    for seed, scales in enumerate(("none", "tensor", "head", "block") if kv else ("none", "none")):
        one = gapped(draw, problem(draw, {**of, "scales": scales}))
        assert not ATTENTION.problem_violations(one, "generic"), one
        prove(kernel(ATTENTION.fallback_spec(one.signature, "generic")), one, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loops_are_right_on_the_plain_target(seed: int) -> None:
    _prove_seed(seed, "generic")


@pytest.mark.parametrize("seed", OTHER)
def test_the_loops_are_right_on_this_machine(seed: int) -> None:
    _prove_seed(seed, best_host_arch().name)


def test_a_check_can_fail() -> None:
    """One element, one logarithm, one row that should be nothing: each is found."""
    one = AttentionProblem(2, 2, 9, 4, 16, window_right=0, align="bottom_right", return_lse=True)
    made = BINDING.sample(one, 3)
    floor = kernel(ATTENTION.fallback_spec(one.signature, "generic"))
    samples.runner(BINDING, floor, one, made, device(HOST), 1)()
    assert BINDING.check(one, made).ok
    names = [slot.name for slot in BINDING.slots]
    out, lse = made.operands[names.index("out")], made.operands[names.index("lse")]
    assert (out[:, :5] == 0).all(), "rows above the first key see nothing"
    assert np.isneginf(lse[:, :, :5]).all()
    for array, place in ((out, (1, 8, 1, 3)), (lse, (0, 1, 8)), (out, (0, 2, 0, 0))):
        before = array[place]
        array[place] = before + 1e-3 if np.isfinite(before) else 0.0
        assert not BINDING.check(one, made).ok
        array[place] = before
    assert BINDING.check(one, made).ok


def test_the_check_in_c_refuses_what_the_kernel_has_not() -> None:
    """What the C check refuses is what the rules say: heads over the kernel's, and features it has not."""
    one = AttentionProblem(1, 2, 3, 4, 16)
    floor = kernel(ATTENTION.fallback_spec(one.signature, "generic"))
    (stage,) = BINDING.dense(one).stages
    assert not floor.refusal(stage.args)
    for field, value, said in (
        ("head_qk", 40, "larger than those"),
        ("heads_kv", 3, "no multiple"),
        ("splits", 2, "splits"),
        ("window_right", 0, "window"),
        ("softcap", 1.0, "soft cap"),
        ("rows", -1, "negative"),
    ):
        args = type(stage.args).from_buffer_copy(stage.args)
        setattr(args, field, value)
        assert said in floor.refusal(args), field


def test_parts_put_together_are_the_whole() -> None:
    """Split and combine, one behind the other, on dropped and sunk scores: as one kernel."""
    from tilewright.dispatch.registry import Registry

    whole = AttentionProblem(2, 4, 5, 70, 16, 2, softcap=True, sink=True, dropout=True, return_lse=True, window_right=3)
    registry = Registry("generic")
    results = []
    for splits in (1, 4):
        made = BINDING.sample(replace(whole, num_splits=splits), 5)
        plan = registry.plan(BINDING.request([None] * len(BINDING.slots), made.attributes, "generic"))
        assert len(plan.stages) == (1 if splits == 1 else 2)
        assert (plan.scratch_bytes > 0) == (splits > 1), "the workspace between stages is told"
        plan.run([0 if one is None else one.ctypes.data for one in made.operands], made.scalars)
        check = BINDING.check(whole, made)
        assert check.ok, check.detail
        results.append(made.operands)
    names = [slot.name for slot in BINDING.slots]
    assert np.abs(results[0][names.index("out")] - results[1][names.index("out")]).max() < 1e-5
