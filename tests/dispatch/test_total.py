"""Dispatch is total: every legal problem gets a kernel, on every target, in copies if need be."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import ops
from tilewright.errors import NoKernelError
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts
from tilewright.ops.gemm.spec import LAYOUTS

GEMM = ops.op("gemm")
INPUTS = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")
sizes = st.one_of(st.integers(0, 200), st.sampled_from([256, 1000, 4096]))


@lru_cache(maxsize=16)
def legal_types(target: str) -> tuple[tuple[str, str, str], ...]:
    """Dtypes of A, B and C that the target multiplies."""
    found = product(INPUTS, INPUTS, ("fp32", "fp16", "bf16", "int32", "int8"))
    return tuple(one for one in found if not GEMM.problem_violations(tw.GemmProblem(8, 8, 8, *one), target))


@st.composite
def problems(draw: st.DrawFn, target: str) -> tw.GemmProblem:
    dtype_a, dtype_b, dtype_c = draw(st.sampled_from(legal_types(target)))
    epilogue = draw(st.sampled_from(EPILOGUES))
    made = tw.GemmProblem(
        m=draw(sizes),
        n=draw(sizes),
        k=draw(sizes),
        dtype_a=dtype_a,
        dtype_b=dtype_b,
        dtype_c=dtype_c,
        layout=draw(st.sampled_from(LAYOUTS)),
        batch=draw(st.integers(0, 3)),
        epilogue=epilogue,
        num_d=draw(st.sampled_from(epilogue_d_counts(epilogue))),
        beta=draw(st.booleans()),
        aligned=draw(st.booleans()),
        # CK Tile has packed kernels of some layouts and sizes only.
        preshuffled=not target.startswith("gfx") and draw(st.booleans()),
    )
    more = [draw(st.sampled_from((0, 0, 1, 8))) for _ in range(3)]
    return replace(
        made, a_stride=made.a_stride + more[0], b_stride=made.b_stride + more[1], c_stride=made.c_stride + more[2]
    )


def check(registry: tw.Registry, problem: tw.GemmProblem) -> None:
    chosen = registry.select(problem)
    assert GEMM.check(chosen.spec) == []
    if chosen.tier != "padded":
        assert GEMM.supports(chosen.spec, problem) == []
        return
    larger = chosen.padded
    assert GEMM.supports(chosen.spec, problem) != []
    assert GEMM.supports(chosen.spec, larger) == []
    assert all(getattr(larger, axis) >= getattr(problem, axis) for axis in "mnk")
    assert (larger.batch, larger.signature) == (problem.batch, problem.signature)
    assert larger.aligned


AMD = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201", "gfx1250"]


@pytest.mark.parametrize("target", [*AMD, "sm_80", "sm_90a", "generic"])
@settings(deadline=None)
@given(data=st.data())
def test_every_legal_problem_has_a_kernel(target: str, data: st.DataObject) -> None:
    problem = data.draw(problems(target))
    assume(not GEMM.problem_violations(problem, target))
    check(tw.Registry(target), problem)


@pytest.mark.parametrize("target", AMD)
def test_what_ck_tile_does_not_take_is_our_own_kernels_and_not_copied(target: str) -> None:
    """Operands over 2 GiB: no copy of them would help."""
    huge = tw.GemmProblem(1 << 17, 64, 1 << 14, "fp16", layout="rcr")
    chosen = tw.Registry(target).select(huge)
    assert (chosen.spec.schedule.pipeline, chosen.tier) == ("tiled", "heuristic")


def test_a_packed_b_is_served_with_every_layout_of_a() -> None:
    """wgmma reads types of one and four bytes along k only; a fuzzer once found them legal without a kernel."""
    for dtype, layout in product(("bf16", "tf32", "int8", "fp8_e4m3"), LAYOUTS):
        problem = tw.GemmProblem(8, 8, 8, dtype, layout=layout, preshuffled=True)
        assert GEMM.problem_violations(problem, "sm_90a") == []
        check(tw.Registry("sm_90a"), problem)


# One kernel without edge code, or with wide accesses, and nothing else registered.
ONLY: dict[str, KernelSpec] = {
    spec.schedule.label(): spec
    for spec in GEMM.proposals("tests", "gfx942", layouts=("rcr",), datatypes=("bf16",), variants=("standard",))
    if not GEMM.check(spec)
}


@pytest.mark.parametrize("spec", ONLY.values(), ids=ONLY.keys())
@settings(deadline=None, max_examples=50)
@given(m=sizes, n=sizes, k=sizes, aligned=st.booleans(), batch=st.integers(1, 2))
def test_every_amd_kernel_serves_everything_in_copies(
    spec: KernelSpec, m: int, n: int, k: int, aligned: bool, batch: int
) -> None:
    problem = tw.GemmProblem(m, n, k, "bf16", layout="rcr", aligned=aligned, batch=batch)
    assume(spec.signature == problem.signature)
    registry = tw.Registry("gfx942", [spec])
    check(registry, problem)
    assert registry.select(problem).spec == spec


def test_an_estimate_of_nothing_is_a_number() -> None:
    """Sizes of 0 meet kernels that divide by their counts of tiles."""
    for target in ("gfx942", "gfx1250", "sm_90a"):
        for size in ((0, 5, 0), (5, 0, 0), (0, 0, 0), (5, 5, 0)):
            assert tw.Registry(target).select(tw.GemmProblem(*size, "bf16", layout="rcr")).seconds >= 0


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("odd", [{"a_stride": 129}, {"aligned": False}], ids=str)
def test_an_a_that_lies_oddly_is_copied_beside_a_packed_b(target: str, odd: dict[str, Any]) -> None:
    """B was packed long before anyone knew where the rows of A would begin."""
    problem = tw.GemmProblem(33, 128, 128, "fp16", layout="rcr", preshuffled=True, **odd)
    chosen = tw.Registry(target).select(problem)
    assert chosen.tier == "padded"
    assert chosen.padded.preshuffled
    assert (chosen.padded.m, chosen.padded.n, chosen.padded.k) == (33, 128, 128)


def test_what_no_copy_mends_beside_a_packed_b_says_so() -> None:
    with pytest.raises(NoKernelError) as caught:
        tw.Registry("gfx942").select(tw.GemmProblem(33, 129, 129, "fp16", layout="rcr", preshuffled=True))
    assert "or give b unpacked" in str(caught.value)
    assert "strict=False" not in caught.value.remedy  # it is not strict


def test_copies_beside_a_packed_b_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, whose kernels need none: the registry is made to take them."""
    choose = tw.Registry._choose
    copied: list[Any] = []

    def in_copies(self: tw.Registry, op: Any, problem: Any, *rest: Any) -> Any:
        found = choose(self, op, problem, *rest)
        if problem.variant != "preshuffle" or problem.m != 7:
            return found
        copied.append(problem)
        dense = replace(problem, a_stride=0, c_stride=0, broadcast_a=False)
        return replace(found, tier="padded", padded=dense)

    monkeypatch.setattr(tw.Registry, "_choose", in_copies)
    rng = np.random.default_rng(20261115)
    registry = tw.Registry("generic")
    a = rng.integers(-3, 4, (3, 7, 43)).astype(np.float32)[:, :, 1:41]
    w, c = rng.integers(-3, 4, (3, 40, 24)).astype(np.float32), np.full((7, 24), 3, np.float32)
    with tw.settings.override(target="generic"):
        one, each = tw.pack(w[0]), tw.pack(w)
    np.testing.assert_array_equal(registry.run("gemm", a[0], one, c, alpha=2.0, beta=0.5), 2 * (a[0] @ w[0]) + 1.5)
    np.testing.assert_array_equal(registry.run("gemm", a, one), a @ w[0])
    np.testing.assert_array_equal(registry.run("gemm", a, each), a @ w)
    assert len(copied) == 3
