"""Kernels that are asked about together, some of which the selection library may not know."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.backends.cuda.gemm import KERNELS
from tilewright.backends.native import FamiliesNative
from tilewright.native import one_kernel
from tilewright.native.judge import judge
from tilewright.native.library import library
from tilewright.ops.base import Violation

pytestmark = pytest.mark.skipif(library(KERNELS.native) is None, reason="no compiler builds the selection library")

GEMM = ops.op("gemm")
PROBLEM = tw.GemmProblem(512, 512, 512, "bf16")
SPECS = GEMM.candidates(GEMM.signature_of(PROBLEM), "sm_90a")


def _violations(rule: str) -> list[Violation]:
    return [] if rule == "serves" else [Violation(rule, "", "")]


def test_kernels_the_library_does_not_know_are_asked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judge(SPECS, range(len(SPECS)))
    assert whole is not None
    known = whole.ask(PROBLEM, 1)
    rules, seconds, served, best = known.rules == 0, known.seconds.copy(), known.served, known.best
    strange = {SPECS[0].digest, SPECS[best].digest, SPECS[-1].digest}
    described = KERNELS.native.schedule
    monkeypatch.setattr(
        FamiliesNative, "schedule", lambda self, spec: None if spec.digest in strange else described(spec)
    )
    in_python = {
        spec.digest: (whole.rule(int(known.rules[at])), float(known.seconds[at])) for at, spec in enumerate(SPECS)
    }
    monkeypatch.setattr(one_kernel, "refusals", lambda spec, problem: _violations(in_python[spec.digest][0]))
    monkeypatch.setattr(one_kernel, "seconds", lambda spec, problem, threads: in_python[spec.digest][1])
    mixed = judge(SPECS, range(len(SPECS)))
    assert mixed is not None
    told = mixed.ask(PROBLEM, 1)
    assert {SPECS[at].digest for at in told.in_python} == strange
    np.testing.assert_array_equal(told.rules == 0, rules)
    np.testing.assert_array_equal(told.seconds, seconds)
    assert (told.served, told.best) == (served, best)


def test_estimates_of_kernels_that_refuse_are_told_when_only_estimates_are_asked_for() -> None:
    whole = judge(SPECS, range(len(SPECS)))
    assert whole is not None
    odd = tw.GemmProblem(512, 511, 512, "bf16")
    refused = whole.ask(odd, 1).rules != 0
    assert refused.any()
    assert not refused.all()
    among = np.ones(len(SPECS), bool)
    among[0] = False
    seconds = whole.estimates(odd, 1, among)
    assert np.isinf(seconds[0])
    assert np.isfinite(seconds[1:]).all()


def test_threads_do_not_see_each_other_s_answers() -> None:
    whole = judge(SPECS, range(len(SPECS)))
    assert whole is not None
    mine = whole.ask(PROBLEM, 1)
    before = mine.seconds.copy()
    other: list[Any] = []
    thread = threading.Thread(target=lambda: other.append(whole.ask(tw.GemmProblem(64, 64, 64, "bf16"), 1)))
    thread.start()
    thread.join()
    assert other[0].seconds is not mine.seconds
    np.testing.assert_array_equal(mine.seconds, before)
