"""`math="tf32"`: an explicit choice, part of what a kernel computes, and exact where a target knows no such math."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.backends.cuda.gemm.names import parts_of_tf32
from tilewright import settings
from tilewright.dispatch.registry import Registry
from tilewright.errors import ProblemError, UnknownNameError
from tilewright.ops import op
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.reference import error_bound, exact
from tilewright.runtime import calls
from tilewright.runtime.plans import Plans

GEMM = op("gemm")
A, B = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)


class Listening:
    """A planner that keeps what it was asked for, and has no kernel."""

    kind = "cpu"

    def __init__(self, target: str) -> None:
        self.target = target
        self.asked: list[GemmProblem] = []
        self.kept = Plans()

    def plans(self) -> Plans:
        return self.kept

    def plan(self, request: Any) -> Any:
        self.asked += [one.problem for one in request.stages]
        raise ProblemError("nothing here", rule="no-kernel", remedy="none")


def test_the_problem_says_how_float32_is_multiplied() -> None:
    planner: Any = Listening("sm_90a")
    for named in ({"math": "tf32"}, {}):
        with pytest.raises(ProblemError, match="nothing here"):
            calls.run(planner, "gemm", A, B, **named)
    chosen, exactly = planner.asked
    assert (chosen.dtype_a, chosen.dtype_b, chosen.dtype_c) == ("tf32", "tf32", "fp32")
    assert (exactly.dtype_a, exactly.dtype_b) == ("fp32", "fp32")
    assert chosen.signature != exactly.signature


def test_it_is_exact_where_the_target_knows_no_such_math() -> None:
    for target in ("generic", "gfx942"):
        planner: Any = Listening(target)
        with pytest.raises(ProblemError, match="nothing here"):
            calls.run(planner, "gemm", A, B, math="tf32")
        assert planner.asked[0].dtype_a == "fp32"
    for _ in range(2):
        np.testing.assert_array_equal(tw.gemm(A, B, math="tf32"), tw.gemm(A, B))
        np.testing.assert_array_equal(tw.matmul(A, B, math="tf32"), tw.gemm(A, B))


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        tw.gemm(A, B, math="tf23", target="generic")
    assert unknown.value.rule == "math-name"
    with pytest.raises(ProblemError) as other:
        tw.gemm(A.astype(np.float16), B.astype(np.float16), math="tf32", target="generic")
    assert other.value.rule == "math-dtype"
    assert "float32" in other.value.remedy


def test_nvidia_has_kernels_for_it_and_no_other_choice_reaches_them() -> None:
    problem = GemmProblem(64, 64, 64, "tf32", layout="rcr")
    for arch in ("sm_80", "sm_90a"):
        found = GEMM.candidates(problem.signature, arch)
        wide = {"tma_ws"} if arch == "sm_90a" else set()
        assert {one.schedule.pipeline for one in found} == {"multistage", "loops"} | wide
        exactly = GEMM.candidates(GemmProblem(64, 64, 64, "fp32", layout="rcr").signature, arch)
        assert all(one.signature.dtype_a == "fp32" for one in exactly)
        assert all(one.schedule.warp_tile == (16, 32, 1) for one in exactly if one.schedule.pipeline == "multistage")


@pytest.mark.parametrize("layout", ["rrr", "crr"])
@pytest.mark.parametrize(("m", "n", "k"), [(8, 6272, 14208), (16, 11840, 3776), (104, 4480, 8512)])
def test_few_rows_that_do_not_lie_along_k_are_cut_into_parts(layout: str, m: int, n: int, k: int) -> None:
    """A copy of B would take longer than the product, and so would tiles that walk all of k by themselves."""
    problem = GemmProblem(m, n, k, "tf32", dtype_c="fp32", layout=layout)
    with settings.override(measure=False):
        chosen = Registry("sm_90a").select(problem).spec
    assert (chosen.schedule.pipeline, chosen.schedule.tile_scheduler) == ("multistage", "split_k")
    tiles, steps = -(-m // chosen.schedule.tile[0]) * -(-n // chosen.schedule.tile[1]), -(-k // chosen.schedule.tile[2])
    assert parts_of_tf32(chosen, tiles, steps, held=3) > 1


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
