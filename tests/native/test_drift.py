"""The selection library and Python say the same: which kernels serve a problem, by which rule not, and how long."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.native import drawn_conv, drawn_gemm
from tilewright import ops
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.native.features import features
from tilewright.native.judge import Judge, judge
from tilewright.native.library import library
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.engine import engine
from tilewright.ops.features import Frame

pytestmark = pytest.mark.skipif(library(now=True) is None, reason="no compiler builds the selection library")

SAME = 1e-12  # of an estimate: the learned models compare theirs at 1e-6
ASKED = 12  # kernels of a problem that Python is asked about too


def _kernels(op: Op, signature: Any, target: str, r: random.Random) -> list[KernelSpec]:
    """The candidates, the floor, and for one signature of ten some kernels of a pool that turns every axis."""
    more = [op.generic_spec(signature, target)]
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


def _drawn(op_name: str, draw: Callable[[random.Random, str], Any], target: str, count: int) -> None:
    r, op = random.Random(f"{op_name} {target}"), ops.op(op_name)
    judges: dict[Any, Judge | None] = {}
    compared = 0
    for _ in range(count):
        problem = draw(r, target)
        signature = op.signature_of(problem)
        if signature not in judges:
            specs = _kernels(op, signature, target, r)
            made = judge(arch(target).backend, op_name, specs, range(len(specs)))
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
    _drawn("gemm", drawn_gemm.problem, target, DRAWN[target])


@pytest.mark.proof
@pytest.mark.parametrize(("target", "count"), [("sm_90a", 2000), ("sm_80", 500)])
def test_conv(target: str, count: int) -> None:
    """Of convolutions on NVIDIA GPUs the library leaves some to Python; what it says is what Python says."""
    _drawn("conv", drawn_conv.problem, target, count)


@pytest.mark.parametrize("target", ["x86_64_v4", "sm_90a"])
def test_features_of_gemm(target: str) -> None:
    """What a model sees in selection is what it saw in training."""
    r, op = random.Random(target), ops.op("gemm")
    part = engine(op)
    frame = Frame(part, op.schedules, {})
    compared = 0
    while compared < 500:
        problem, units = drawn_gemm.problem(r, target), r.choice((1, 2, 16, 132))
        pool = frame.pool(op.candidates(op.signature_of(problem), target), units)
        made = features("gemm", pool.fields, len(pool.specs), units, (frame.problem_columns, frame.interaction_columns))
        assert made is not None
        of_problem = np.empty(len(frame.problem_columns), np.float32)
        of_both = np.empty((len(frame.interaction_columns), len(pool.specs)))
        made.fill(problem, of_problem.ctypes.data, of_both.ctypes.data)
        np.testing.assert_array_equal(of_problem, frame.of_problem(problem), str(problem))
        np.testing.assert_array_equal(of_both, part.interactions(problem, pool.fields, units), str(problem))
        compared += 1
