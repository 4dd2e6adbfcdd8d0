"""What can be known of tests/gpu/test_conv.py without a GPU: its sums are the package's, its judge sees mistakes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.gpu.conv_cases import CASES, CONV, Case, drawn
from tests.gpu.conv_questions import Question, sums
from tests.gpu.torch_here import torch
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem, reference
from tilewright.ops.conv.problem_rules import problem_violations

ARCH = "sm_90a"
SMALL = 1e6  # operations


def small(case: Case, count: int) -> list[ConvProblem]:
    rng = random.Random(f"small {case}")
    found: list[ConvProblem] = []
    while len(found) < count:
        one = drawn(rng, case)
        if not problem_violations(one) and one.flops < SMALL:
            found.append(one)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_sums_are_those_of_the_package(case: Case) -> None:
    generator = np.random.default_rng(7)
    for p in small(case, 8):
        x, w, y = (generator.standard_normal(shape) for shape in (p.x_shape, p.w_shape, p.y_shape))
        want = reference.sums(p, x, w, y)
        np.testing.assert_allclose(sums(p, x, w, y, device="cpu"), want, rtol=1e-11, atol=1e-11)
        some = np.arange(0, len(want), 3)
        np.testing.assert_allclose(sums(p, x, w, y, some, device="cpu"), want[some], rtol=1e-11, atol=1e-11)


@dataclass(frozen=True)
class Kernel:
    """What a kernel would do, by PyTorch in the problem's own type, and one thing wrong with it."""

    spec: KernelSpec
    problem: ConvProblem
    wrong: str = ""

    def __call__(self, first: Any, second: Any, *, out: Any, ds: Any, **_: Any) -> None:
        if self.wrong == "nothing written":
            return
        p, width = self.problem, torch.float64
        names = {"forward": "xw", "backward_data": "yw", "backward_weight": "xy"}[p.variant]
        read = {name: one.to(width).numpy() for name, one in zip(names, (first, second), strict=True)}
        read |= {"ds": tuple(one.float().numpy() for one in ds)}
        value = reference.reference(p, {"x": None, "w": None, "y": None, **read})
        result = torch.from_numpy(value.astype(np.float64)).to(out.dtype)
        if self.wrong == "one element":
            at = tuple(size // 2 for size in result.shape)
            result[at] += 1 if p.dtype_out == "int32" else result.abs().max() / 16
        if self.wrong == "one left":
            last = tuple(size - 1 for size in result.shape)
            result[last] = out[last]
        if self.wrong == "moved":
            result = result.flatten().roll(1).reshape(result.shape)
        out.copy_(result)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_results_pass_and_wrong_ones_do_not(case: Case) -> None:
    spec = CONV.fallback_spec(case.signature, ARCH)
    for seed, p in enumerate(small(case, 3)):
        question = Question(p, seed, "cpu")
        assert question.answer(Kernel(spec, p)) == ""
        for wrong in ("one element", "one left", "moved", "nothing written"):
            assert question.answer(Kernel(spec, p, wrong)) != "", (wrong, p.describe())
        assert question.answer(Kernel(spec, p)) == ""
