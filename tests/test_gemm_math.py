"""`math="tf32"`: an explicit choice, part of what a kernel computes, refused where it has no meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ProblemError, TilewrightError, UnknownNameError
from tilewright.ops import op
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.reference import error_bound, exact
from tilewright.runtime.bindings.gemm import call

GEMM = op("gemm")
A, B = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)


class Listening:
    """A planner that keeps what it was asked for, and has no kernel."""

    kind = "cpu"

    def __init__(self) -> None:
        self.asked: list[GemmProblem] = []
        self.kept: dict[Any, Any] = {}

    def plans(self) -> dict[Any, Any]:
        return self.kept

    def plan(self, op: str, request: Any, where: Callable[..., str] | None = None) -> Any:
        self.asked.append(request.problem)
        raise ProblemError("nothing here", rule="no-kernel", remedy="none")


def test_the_problem_says_how_float32_is_multiplied() -> None:
    planner: Any = Listening()
    with pytest.raises(ProblemError, match="nothing here"):
        call.run_with_math(planner, "tf32", A, B, None, 1.0, 0.0, (), "passthrough", None, None)
    with pytest.raises(ProblemError, match="nothing here"):
        call.run(planner, A, B)
    chosen, exactly = planner.asked
    assert (chosen.dtype_a, chosen.dtype_b, chosen.dtype_c) == ("tf32", "tf32", "fp32")
    assert (exactly.dtype_a, exactly.dtype_b) == ("fp32", "fp32")
    assert chosen.signature != exactly.signature


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        tw.gemm(A, B, math="tf23", target="generic")
    assert unknown.value.rule == "math-name"
    with pytest.raises(ProblemError) as other:
        tw.gemm(A.astype(np.float16), B.astype(np.float16), math="tf32", target="generic")
    assert other.value.rule == "math-dtype"
    assert "float32" in other.value.remedy
    with pytest.raises(TilewrightError, match="tf32") as here:  # the CPU multiplies exactly, and says so
        tw.gemm(A, B, math="tf32", target="generic")
    assert here.value.remedy


def test_nvidia_has_kernels_for_it_and_no_other_choice_reaches_them() -> None:
    problem = GemmProblem(64, 64, 64, "tf32", layout="rcr")
    for arch in ("sm_80", "sm_90a"):
        found = GEMM.candidates(problem.signature, arch)
        wide = {"tma_ws"} if arch == "sm_90a" else set()
        assert {one.schedule.pipeline for one in found} == {"multistage", "loops"} | wide
        exactly = GEMM.candidates(GemmProblem(64, 64, 64, "fp32", layout="rcr").signature, arch)
        assert all(one.signature.dtype_a == "fp32" for one in exactly)
        assert all(one.schedule.warp_tile == (32, 16, 4) for one in exactly if one.schedule.pipeline == "multistage")


def test_its_error_bound_is_that_of_inputs_with_eleven_bits() -> None:
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {
        "a": rng.standard_normal((1, 9, 70)),
        "b": rng.standard_normal((1, 70, 5)),
        "c": None,
        "ds": (),
    }
    arrays |= {"alpha": 1.0, "beta": 0.0}
    plain, rounded = (GemmProblem(9, 5, 70, name, layout="rrr") for name in ("fp32", "tf32"))
    found = exact(rounded, arrays)
    extra = error_bound(rounded, found) - error_bound(plain, found)
    assert np.all(extra >= 2.0**-10 * found.products)
    assert np.all(extra <= 2.0**-10 * found.products * 1.01)
