"""The selection library and Python say the same: which kernels serve a problem, by which rule not, and how long."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.native import drawn_attention, drawn_conv, drawn_gemm
from tilewright import ops
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cpu.gemm import KERNELS
from tilewright.native.features import features
from tilewright.native.judge import Judge, judge
from tilewright.native.library import library
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.engine import engine
from tilewright.ops.features import Frame, kernel_columns

pytestmark = pytest.mark.skipif(library(KERNELS.native) is None, reason="no compiler builds the selection library")

SAME = 1e-12  # of an estimate: the learned models compare theirs at 1e-6
ASKED = 12  # kernels of a problem that Python is asked about too


def _kernels(op: Op, signature: Any, target: str, r: random.Random) -> list[KernelSpec]:
    """The candidates, the fallback kernel, and of one signature in ten some of a pool that varies every axis."""
    more = [op.fallback_spec(signature, target)]
    if r.random() < 0.1:
        swept = [one for one in op.proposals("full", target, **op.axes_of(signature)) if one.signature == signature]
        more += r.sample(swept, min(24, len(swept)))
    return [*op.candidates(signature, target), *(one for one in more if not op.check(one))]


def _compare(mine: Judge, op: Op, problem: Any, threads: int, r: random.Random) -> int:
    """How many kernels were compared."""
    owner = backend(arch(mine.specs[0].arch).backend)
    answer = mine.ask(problem, threads)
    places = r.sample(range(len(mine.specs)), min(ASKED, len(mine.specs)))
    for at in places:
        if at in answer.in_python:
            continue
        spec = mine.specs[at]
        refused = op.supports(spec, problem)
        assert mine.rule(int(answer.rules[at])) == (refused[0].rule if refused else "serves"), (spec.name, problem)
        expected = math.inf if refused else owner.estimate(spec, problem, threads)
        expected = math.inf if math.isnan(expected) else expected
        told = float(answer.seconds[at])
        assert told == expected or abs(told - expected) <= SAME * expected, (spec.name, problem, threads)
    return len(places)


def _drawn(op_name: str, draw: Callable[[random.Random, str], Any], target: str, count: int, seed: int = 0) -> None:
    r, op = random.Random(f"{op_name} {target} {seed}" if seed else f"{op_name} {target}"), ops.op(op_name)
    judges: dict[Any, Judge | None] = {}
    compared = 0
    for _ in range(count):
        problem = draw(r, target)
        signature = op.signature_of(problem)
        if signature not in judges:
            specs = _kernels(op, signature, target, r)
            made = judge(specs, range(len(specs)))
            assert (made is not None) == bool(specs), "the library does not know these kernels"
            judges[signature] = made
        mine = judges[signature]
        compared += 0 if mine is None else _compare(mine, op, problem, r.choice((1, 2, 4, 16)), r)
    assert compared >= count


# Together 20,000 problems.
DRAWN = {"x86_64_v4": 3000, "x86_64_v3": 2000, "generic": 1000, "sm_90a": 7000, "sm_80": 3000, "gfx942": 2000,
         "gfx908": 1000, "gfx1100": 1000}  # fmt: skip


@pytest.mark.parametrize("target", DRAWN)
def test_gemm(target: str) -> None:
    _drawn("gemm", drawn_gemm.problem, target, 300, seed=1)


@pytest.mark.proof
@pytest.mark.parametrize("target", DRAWN)
def test_gemm_at_length(target: str) -> None:
    _drawn("gemm", drawn_gemm.problem, target, DRAWN[target])


PROOF = pytest.mark.proof


@pytest.mark.parametrize(
    ("target", "count"),
    [("sm_90a", 60), *(pytest.param(*one, marks=PROOF) for one in (("sm_90a", 2000), ("sm_80", 500)))],
)
def test_conv(target: str, count: int) -> None:
    _drawn("conv", drawn_conv.problem, target, count)


ATTENTION = ("x86_64_v4", "x86_64_v3", "generic", "sm_90a", "sm_80", "gfx942", "gfx90a", "gfx1100")


@pytest.mark.parametrize("target", ATTENTION)
def test_attention(target: str) -> None:
    _drawn("attention", drawn_attention.problem, target, 300)


@pytest.mark.proof
@pytest.mark.parametrize("target", ATTENTION)
def test_more_attention(target: str) -> None:
    _drawn("attention", drawn_attention.problem, target, 5000, seed=1)


def _host_conv(r: random.Random, target: str) -> Any:
    return drawn_conv.problem(r, target, extreme=0.2)


# The CPU and AMD GPUs, where limits and costs are C++ alone: of kernels asked together it says what it says of each.
HOST_CONV = ("x86_64_v4", "x86_64_v3", "generic", "gfx942", "gfx950", "gfx90a", "gfx908", "gfx1100", "gfx1201")


@pytest.mark.parametrize("target", HOST_CONV)
def test_conv_of_cpus_and_amd(target: str) -> None:
    _drawn("conv", _host_conv, target, 200)


@pytest.mark.proof
@pytest.mark.parametrize("target", HOST_CONV)
def test_conv_of_cpus_and_amd_at_length(target: str) -> None:
    _drawn("conv", _host_conv, target, 5000, seed=1)


@pytest.mark.parametrize("target", ["x86_64_v4", "sm_90a"])
def test_features_of_gemm(target: str) -> None:
    """What a model sees in selection is what it saw in training."""
    _same_features("gemm", drawn_gemm.problem, target)


@pytest.mark.parametrize("target", ["x86_64_v4", "sm_90a", "gfx942"])
def test_features_of_conv(target: str) -> None:
    _same_features("conv", drawn_conv.problem, target)


def _same_features(op_name: str, draw: Callable[[random.Random, str], Any], target: str) -> None:
    r, op = random.Random(target), ops.op(op_name)
    part = engine(op)
    frame = Frame(part, kernel_columns(op.schedules), {})
    compared = 0
    while compared < 500:
        problem, units = draw(r, target), r.choice((1, 2, 16, 132))
        pool = frame.pool(op.candidates(op.signature_of(problem), target), units)
        made = features(pool.specs, pool.fields, units, (frame.problem_columns, frame.interaction_columns))
        assert made is not None
        of_problem = np.empty(len(frame.problem_columns), np.float32)
        of_both = np.empty((len(frame.interaction_columns), len(pool.specs)))
        made.fill(problem, of_problem.ctypes.data, of_both.ctypes.data)
        frame.put_words(problem, of_problem)
        np.testing.assert_array_equal(of_problem, frame.of_problem(problem), str(problem))
        # Logarithms of C's library and of NumPy's differ in the last bit of a few.
        exact = part.interactions(problem, pool.fields, units)
        assert np.array_equal(np.isnan(of_both), np.isnan(exact)), problem
        np.testing.assert_array_max_ulp(np.nan_to_num(of_both), np.nan_to_num(exact), 2)
        compared += 1
