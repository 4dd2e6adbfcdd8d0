"""What is remembered of calls: plans never change, and those least recently used are forgotten first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, settings
from tilewright.dispatch import registry as dispatch_registry
from tilewright.dispatch.registry import Registry
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import calls, fast_path, plans
from tilewright.runtime.bindings import binding

Array = np.ndarray[Any, Any]


@pytest.fixture
def registry() -> Registry:
    """Of one kernel; nothing is remembered yet."""
    return Registry("generic", specs=[ops.op("gemm").fallback_spec(tw.GemmProblem(1, 1, 1).signature, "generic")])


@pytest.fixture
def long_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the calls that were not C's alone."""
    found: list[int] = []
    long = calls.Caller.run_slow

    def run_slow(self: Any, planner: Any, operands: Any, *others: Any) -> Any:
        found.append(len(operands[0]))
        return long(self, planner, operands, *others)

    monkeypatch.setattr(calls.Caller, "run_slow", run_slow)
    return found


def product(registry: Registry, rows: int) -> Any:
    return registry.run("gemm", np.ones((rows, 2), np.float32), np.ones((2, 2), np.float32))


@pytest.mark.usefixtures("needs_compiler")
def test_a_plan_never_changes(registry: Registry) -> None:
    product(registry, 3)
    ((plan, _),) = registry.plans().known.values()
    for name in (*plans.Plan.__slots__, "counter"):
        with pytest.raises(AttributeError, match="a plan never changes"):
            setattr(plan, name, None)


@pytest.mark.usefixtures("needs_compiler")
def test_calls_in_use_are_kept_and_others_forgotten(
    registry: Registry, long_calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size 1 is called again and again between sizes that never repeat: it is planned once."""
    if fast_path.library() is None:
        pytest.skip("C makes no calls here")
    monkeypatch.setattr(plans, "MOST_PLANS", 16)
    for size in range(2, 120):
        product(registry, 1)
        product(registry, size)
        assert len(registry.plans()) <= 16
        assert sum(map(len, registry.plans().fast.values())) <= 16
    assert long_calls.count(1) == 1
    assert len(long_calls) == 119
    del long_calls[:]
    product(registry, 119)
    assert not long_calls, "the newest are kept"
    product(registry, 2)
    assert long_calls == [2], "the oldest are gone"


@pytest.mark.usefixtures("needs_compiler")
def test_plans_that_python_runs_are_kept_by_use_too(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PLANS", 8)
    made: list[int] = []
    plan = Registry.plan

    def counted(self: Registry, request: Any, spec: Any = None) -> Any:
        made.append(request.stages[0].problem.m)
        return plan(self, request, spec)

    monkeypatch.setattr(Registry, "plan", counted)
    a, b = np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)
    for size in range(2, 40):
        registry.run("gemm", a, b, copy="allow")
        registry.run("gemm", np.ones((size, 2), np.float32), b, copy="allow")
    assert made.count(1) == 1


def test_choices_are_kept_by_use(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_registry, "MOST_REMEMBERED", 4)
    kept = registry.select_stage(tw.GemmProblem(1, 2, 2))
    for size in range(2, 30):
        registry.select_stage(tw.GemmProblem(size, 2, 2))
        assert registry.select_stage(tw.GemmProblem(1, 2, 2)) is kept
        assert len(registry._selections) <= 4


def together(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run work(0), work(1), ... in threads at once; what they raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(count)

    def one(index: int) -> None:
        try:
            start.wait()
            work(index)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.usefixtures("needs_compiler")
def test_threads_forget_and_remember_at_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PLANS", 4)
    product(registry, 1)

    def work(index: int) -> None:
        for turn in range(150):
            rows = 1 + (turn * (index + 1)) % 23
            assert (product(registry, rows) == np.full((rows, 2), 2)).all()

    assert together(4, work) == []
    known = registry.plans()
    assert len(known) <= 4
    assert sum(map(len, known.fast.values())) == known._fast_count <= 4


class Number:
    """A whole number that may be another tomorrow."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.usefixtures("needs_compiler")
def test_options_that_change_are_read_again() -> None:
    x, w = np.ones((1, 9, 9, 2), np.float32), np.ones((2, 3, 3, 2), np.float32)
    strides, own = [1, 1], Number(1)
    for step, size in ((1, 7), (2, 4), (1, 7), (3, 3), (2, 4)):
        strides[:] = [step, step]
        own.value = step
        for stride in (strides, tuple(strides), own, np.int64(step)):
            assert tw.conv(x, w, stride=stride).shape == (1, size, size, 2)
    for _ in range(2):  # equal to what was taken before, and refused all the same
        for wrong in (1.0, True, (1.0, 1), np.float64(1)):
            with pytest.raises(tw.TilewrightError):
                tw.conv(x, w, stride=wrong)


@pytest.mark.usefixtures("needs_compiler")
def test_archs_that_settings_take_away_are_refused_though_they_ran_before() -> None:
    spec = tw.Registry().select(tw.GemmProblem(64, 64, 64)).spec
    if spec.arch == "generic":
        pytest.skip("this CPU has no level to take away")
    registry, a = tw.Registry(spec.arch), np.ones((64, 64), np.float32)
    registry.run("gemm", a, a)
    with settings.override(host_level="generic"), pytest.raises(tw.TilewrightError, match="do not run on this machine"):
        registry.run("gemm", a, a)
    registry.run("gemm", a, a)


@pytest.mark.parametrize("fused", [{}, {"epilogue": "MultiDAdd", "num_d": 4}, {"epilogue": "Silu", "num_d": 0}])
def test_a_dense_gemm_shows_a_span_of_every_slot(fused: dict[str, Any]) -> None:
    """Checks of kernels on GPUs are shown them by slot; one too few, and no kernel of a GPU can be planned."""
    request = binding("gemm").dense(GemmProblem(64, 64, 64, dtype_a="bf16", **fused))
    assert len(request.spans) == len(binding("gemm").slots)
    assert all(pointer.slot < len(request.spans) for stage in request.stages for pointer in stage.pointers)
