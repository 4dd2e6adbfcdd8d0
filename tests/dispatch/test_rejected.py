"""A kernel whose build refuses its code: the next candidate takes its place, unless somebody decided on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.dispatch.test_trials import SIGNATURE, many
from tilewright import events, ops, settings
from tilewright.dispatch import kernels, locks
from tilewright.dispatch.problem_run import run_problem
from tilewright.errors import InspectionError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel

GEMM = ops.op("gemm")
PROBLEM = tw.GemmProblem(m=9, n=9, k=3)
A, B = np.full((9, 3), 2, np.float32), np.ones((3, 9), np.float32)
Refuse = Callable[[Collection[KernelSpec]], list[str]]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Lets builds refuse these kernels; the names of those asked for, in their order."""
    load = kernels.kernel

    def use(specs: Collection[KernelSpec]) -> list[str]:
        asked: list[str] = []

        def kernel(spec: KernelSpec) -> Kernel:
            asked.append(spec.name)
            if spec in specs:
                error = InspectionError(f"{spec.name} touches v0 too early", rule="missing-wait")
                error.digest = spec.digest
                raise error
            return load(spec)

        monkeypatch.setattr(kernels, "kernel", kernel)
        return asked

    return use


def registry_of_three() -> tuple[tw.Registry, list[KernelSpec]]:
    """A registry with three kernels, in the order that it would choose them."""
    registry = tw.Registry()
    specs, order = many(registry, 3), list[KernelSpec]()
    registry.add(specs)
    while len(order) < 3:
        order.append(registry.select(PROBLEM, where=lambda spec: "it was chosen" if spec in order else "").spec)
    return registry, order


def test_the_next_candidate_takes_its_place(refuse: Refuse) -> None:
    registry, (first, second, _) = registry_of_three()
    asked = refuse([first])
    with events.recorded() as heard:
        np.testing.assert_array_equal(registry.run("gemm", A, B), 6)
    assert asked == [first.name, second.name]
    (warned,) = [each for each in heard if isinstance(each, events.Warned) and each.rule == "missing-wait"]
    assert first.name in warned.message

    np.testing.assert_array_equal(registry.run("gemm", A[:5], B), 6)  # other sizes know it already
    assert asked.count(first.name) == 1
    chosen = registry.select(PROBLEM)
    assert chosen.stages[0].spec == second
    assert f"not {first.name}: the build refused its code" in chosen.reason


def test_explain_says_why_it_is_left_out(refuse: Refuse) -> None:
    registry, (first, second, _) = registry_of_three()
    refuse([first])
    registry.run("gemm", A, B)
    explanation = registry.explain(PROBLEM)
    verdicts = {each.name: each for each in explanation.candidates}
    assert verdicts[second.name].verdict == "chosen"
    assert verdicts[first.name].verdict == "refused"
    assert verdicts[first.name].reasons == (f"[missing-wait] {first.name} touches v0 too early",)


def test_where_all_are_refused_the_fallback_serves(refuse: Refuse) -> None:
    registry, order = registry_of_three()
    asked = refuse(order)
    np.testing.assert_array_equal(registry.run("gemm", A, B), 6)
    assert asked == [*(spec.name for spec in order), GEMM.fallback_spec(SIGNATURE, registry.target).name]


def test_behind_the_fallback_there_is_nothing(refuse: Refuse) -> None:
    registry, order = registry_of_three()
    asked = refuse([*order, GEMM.fallback_spec(SIGNATURE, registry.target)])
    with pytest.raises(InspectionError, match="too early"):
        registry.run("gemm", A, B)
    assert len(asked) == 4


def test_strict_mode_does_not_choose_again(refuse: Refuse) -> None:
    registry, order = registry_of_three()
    asked = refuse(order[:1])
    with settings.override(strict=True), pytest.raises(InspectionError, match="too early"):
        registry.run("gemm", A, B)
    assert asked == [order[0].name]


def test_a_kernel_that_was_asked_for_is_not_replaced(refuse: Refuse) -> None:
    registry, (_, second, _) = registry_of_three()
    asked = refuse([second])
    with pytest.raises(InspectionError, match="too early"):
        run_problem(registry, PROBLEM, repeat=1, seed=1, verify=False, spec=second)
    assert asked == [second.name]


def test_a_kernel_that_is_pinned_is_not_replaced(refuse: Refuse, tmp_path: Path) -> None:
    """Nor where calls without the lock file have seen it refused."""
    registry, (first, _, _) = registry_of_three()
    refuse([first])
    registry.run("gemm", A, B)
    locks.write(tmp_path / "a.lock", [locks.pin(GEMM, registry.target, PROBLEM, first)])
    with settings.override(lock=str(tmp_path / "a.lock")), pytest.raises(InspectionError, match="too early"):
        registry.run("gemm", A, B)


def test_other_settings_build_other_code(refuse: Refuse) -> None:
    registry, (first, _, _) = registry_of_three()
    refuse([first])
    registry.run("gemm", A, B)
    with settings.override(cxxflags="-DNOTHING"):
        chosen = registry.select(PROBLEM)
    assert chosen.stages[0].spec == first
    assert "refused" not in chosen.reason
