"""Each kernel is judged by what it promises: errors that Winograd's filtering may make are wrong of any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright import events
from tilewright.dispatch import measure
from tilewright.dispatch.problem_run import run_problem
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.reference import error_bound, exact, from_rows, verify
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding
from tilewright.runtime.bindings.conv.samples import named
from tilewright.runtime.checked_runs import ProblemRuns
from tilewright.runtime.devices import device_of
from tilewright.runtime.requests import Sample
from tilewright.runtime.timing import Method
from tilewright.tune.spent import Spent

CONV, BINDING = op("conv"), binding("conv")
VARIANTS = ["forward", "backward_data"]


def of(variant: str) -> ConvProblem:
    return ConvProblem(1, 16, 16, (12, 12), (3, 3), before=(1, 1), after=(1, 1), variant=variant)


def kernel(variant: str, pipeline: str) -> KernelSpec:
    found = CONV.proposals("default", "x86_64_v3", variants=(variant,))
    return next(one for one in found if one.schedule.pipeline == pipeline)


def filtered_result(problem: ConvProblem, made: Sample) -> Any:
    """A right result off by half of what filtering may be off, everywhere."""
    found = exact(problem, named(problem, made))
    wide = error_bound(problem, found, filtering=True)
    return from_rows(problem, found.value + 0.5 * wide).astype(np.float32)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_wider_bound_is_of_kernels_that_filter_alone(variant: str) -> None:
    p = of(variant)
    made = BINDING.sample(p, 3)
    result = filtered_result(p, made)
    assert verify(p, named(p, made), result, filtering=True).ok
    assert not verify(p, named(p, made), result).ok
    with_result = replace(made, operands=(*made.operands[:-1], result))
    asked = BINDING.judge(p, made)
    for pipeline, right in (("winograd", True), ("implicit", False), ("loops", False), ("lanes", False)):
        spec = kernel(variant, pipeline) if pipeline != "loops" else CONV.fallback_spec(p.signature, "x86_64_v3")
        assert asked(with_result, (spec,)).ok is right, pipeline
        assert BINDING.check(p, with_result, (spec,)).ok is right, pipeline
    assert not BINDING.check(p, with_result).ok


def test_what_cannot_be_filtered_has_one_bound() -> None:
    """Strides, other windows, gradients of weights: nothing wider to be judged by."""
    for p in (
        replace(of("forward"), stride=(2, 1), y_strides=()),
        replace(of("forward"), window=(3, 5), w_strides=(), y_strides=()),
        replace(of("forward"), variant="backward_weight"),
    ):
        found = exact(p, named(p, BINDING.sample(p, 3)))
        assert np.array_equal(error_bound(p, found, filtering=True), error_bound(p, found))


def writer(problem: ConvProblem) -> Callable[..., Callable[[], None]]:
    """In the place of `samples.runner`: whatever the kernel, the result is off as filtering may be off."""

    def runner(bound: Any, kernel: Any, problem_: Any, sample: Sample, *rest: Any) -> Callable[[], None]:
        def run() -> None:
            sample.operands[-1][...] = filtered_result(problem, sample)

        return run

    return runner


def test_a_race_takes_what_each_kernel_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    p = of("forward")
    monkeypatch.setattr(samples, "runner", writer(p))
    raced = [SimpleNamespace(spec=kernel("forward", one), name=one) for one in ("implicit", "winograd", "lanes")]
    with events.recorded() as told:
        right = measure._checked(raced, ProblemRuns(p, device_of("generic"), Method()), 1)  # type: ignore[arg-type]
    assert [one.kernel.name for one in right] == ["winograd"]
    assert [one.rule for one in told if isinstance(one, events.Warned)] == ["wrong-result"] * 2


def test_so_does_each_kernel_of_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    p = of("forward")
    monkeypatch.setattr(samples, "runner", writer(p))
    spent = Spent()
    runs = ProblemRuns(p, device_of("generic"), Method(), spent.on)
    for pipeline, right in (("implicit", False), ("winograd", True)):
        made = runs.checked(SimpleNamespace(spec=kernel("forward", pipeline)), 1)  # type: ignore[arg-type]
        assert made.check.ok is right
        assert made.non_zero
    assert {"load", "run", "verify"} <= set(spent)


def test_a_problem_that_is_run_is_judged_by_the_kernel_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dispatch.registry import default_registry

    seen: list[Sequence[KernelSpec]] = []
    ask = samples.check

    def watched(bound: Any, problem: Any, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Any:
        seen.append(kernels)
        return ask(bound, problem, sample, kernels)

    monkeypatch.setattr(samples, "check", watched)
    report = run_problem(default_registry(), of("forward"), repeat=1, seed=1, verify=True)
    assert report["ok"]
    assert [one.name for one in seen[0]] == [report["kernel"]]
