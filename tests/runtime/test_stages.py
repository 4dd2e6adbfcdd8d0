"""Plans of several stages: chosen, run, explained and measured apart, with a workspace between them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.runtime import staged_op
from tests.runtime.fakes import HERE, FakeHip
from tests.runtime.staged_op import NAME, PickProblem, PickSchedule, PickSignature, expected_of
from tilewright import plugins
from tilewright.dispatch import records as record_module
from tilewright.dispatch.problem_run import run_problem
from tilewright.dispatch.records import Records
from tilewright.dispatch.selection import StagedSelection
from tilewright.errors import DeviceError, NoKernelError, ProblemError, RequestError
from tilewright.ops.base import KernelSpec
from tilewright.runtime import calls, fast_path, hip, recording
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.settings import current


@pytest.fixture
def op(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op is found as if it were installed."""
    real = plugins.load
    found = {("tilewright.ops", NAME): staged_op.OP, ("tilewright.bindings", NAME): staged_op.BINDING}
    monkeypatch.setattr(plugins, "load", lambda *asked: found.get(asked[:2]) or real(*asked))
    monkeypatch.setattr(calls, "_callers", dict(calls._callers))


def text(spec: KernelSpec, wanted: int = 0, clear: int = 0) -> str:
    words = {
        "CLEAR": clear,
        "MANIFEST": f'R"x({spec.to_json()})x"',
        "STAGE": 1 if spec.signature.stage == "square" else 2,
        "WANTED": wanted,
    }
    head = "#include <stdint.h>\n" + "".join(f"#define {name} {value}\n" for name, value in words.items())
    return head + (HERE / "staged_op.cpp").read_text(encoding="utf-8")


def spec(stage: str, variant: int = 0, arch: str = "generic") -> KernelSpec:
    return KernelSpec(NAME, PickSignature(stage), PickSchedule(variant), arch)


@pytest.fixture(params=[0, 5000], ids=["plain", "hungry"])
def registry(
    op: None, request: pytest.FixtureRequest, library_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> tw.Registry:
    """Two kernels of each stage; the second of each is said to be faster."""
    made = tw.Registry("generic")
    monkeypatch.setattr(made._judges, "_backend", Estimating(made._backend))
    for stage in ("square", "gather"):
        for variant in range(2):
            made.add_library(library_of(text(spec(stage, variant), request.param)))
    return made


class Estimating:
    """The backend with times for kernels it does not know."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def estimate(self, one: KernelSpec, problem: Any, threads: int) -> float:
        return 2.0 - float(one.schedule.variant)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def operands(*shape: int, picks: int = 7) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(-9, 9, shape).astype(np.float32)
    return x, rng.integers(0, x.size, picks, dtype=np.int32), rng.integers(-9, 9, picks).astype(np.float32)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_two_results_of_two_stages(registry: tw.Registry, shape: tuple[int, ...]) -> None:
    x, table, more = operands(*shape)
    squares = x.reshape(-1).astype(np.float64) ** 2
    for turn in range(3):
        y, seen = registry.run(NAME, x, table, alpha=0.5)
        np.testing.assert_array_equal(y, expected_of(squares, table, None, 0.5, 0))
        np.testing.assert_array_equal(seen, table + 1)
        y, seen = registry.run(NAME, x, table, more, gamma=turn)
        np.testing.assert_array_equal(y, expected_of(squares, table, more, 1, turn))
        into = np.zeros_like(seen)
        y, given = registry.run(NAME, x, table, seen=into)
        assert given is into
        np.testing.assert_array_equal(given, table + 1)
    assert len(registry.plans()) == 3
    ((plan, _), *_) = registry.plans().known.values()
    assert [one.spec for one in plan.selections] == [spec("square", 1), spec("gather", 1)]


def test_known_calls_are_made_by_c(registry: tw.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    x, table, more = operands(4, 3)
    first = registry.run(NAME, x, table, more)
    if fast_path.library() is None:
        pytest.skip("no compiler: Python makes every call")

    def never(*_arguments: Any) -> Any:
        raise AssertionError("this call was made before")

    monkeypatch.setattr(calls.Caller, "run_slow", never)
    for again in (registry.run(NAME, x, table, more), registry.run(NAME, x.copy(), table.copy(), more.copy())):
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_same_without_the_library(registry: tw.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "library", lambda: None)
    x, table, more = operands(2, 3, 4)
    for _ in range(2):
        y, _ = registry.run(NAME, x, table, more)
        np.testing.assert_array_equal(y, expected_of(x.reshape(-1).astype(np.float64) ** 2, table, more, 1, 1))


def test_each_stage_of_a_recorded_call_is_a_problem(registry: tw.Registry, tmp_path: Path) -> None:
    x, table, more = operands(4, 3)
    with tw.record(tmp_path / "mine.json") as file:
        for _ in range(3):
            registry.run(NAME, x, table, more)
    found = {(op, json.loads(problem)["stage"]): calls for (op, problem), calls in recording.read(file).items()}
    assert found == {(NAME, "square"): 3, (NAME, "gather"): 3}


def test_results_may_not_meet_what_is_read_or_each_other(registry: tw.Registry) -> None:
    x, table, more = operands(4, 3)
    expected = registry.run(NAME, x, table, more)[0]
    for _ in range(2):
        into = more.copy()
        assert registry.run(NAME, x, table, into, y=into)[0] is into  # the twin
        np.testing.assert_array_equal(into, expected)
        memory = np.zeros(8, np.float32)
        with pytest.raises(ProblemError, match="y shares memory with more"):
            registry.run(NAME, x, table, memory[:7], y=memory[1:])
        with pytest.raises(ProblemError, match="and both are written\n  remedy: give y and seen memory of their own"):
            registry.run(NAME, x, table, more, y=memory[:7], seen=memory.view(np.int32)[:7])


def test_a_stage_that_fails_is_named(registry: tw.Registry) -> None:
    x, table, _ = operands(4, 3)
    registry.run(NAME, x, table)
    table = table.copy()
    table[3] = 99
    for _ in range(2):
        with pytest.raises(DeviceError, match="gather_v1"):
            registry.run(NAME, x, table)


def test_threads_have_workspaces_of_their_own(registry: tw.Registry) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x, table = rng.integers(-9, 9, 500).astype(np.float32), rng.integers(0, 500, 64, dtype=np.int32)
            y, _ = registry.run(NAME, x, table)
            if not np.array_equal(y, (x.astype(np.float64) ** 2)[table].astype(np.float32)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_each_stage_is_selected_and_explained(registry: tw.Registry) -> None:
    problem = PickProblem((4, 3), 7)
    chosen = registry.select(problem)
    assert isinstance(chosen, StagedSelection)
    for name in ("spec", "padded"):  # of one kernel alone
        with pytest.raises(RequestError, match="runs as 2 kernels") as caught:
            getattr(chosen, name)
        assert caught.value.rule == "several-kernels"
    assert [one.spec for one in chosen.stages] == [spec("square", 1), spec("gather", 1)]
    assert (chosen.tier, chosen.seconds) == ("heuristic", 2.0)
    assert registry.select(staged_op.OP.stages(problem, "generic")[0]).spec == spec("square", 1)
    told = registry.explain(problem)
    assert [len(one.candidates) for one in told.stages] == [2, 2]
    assert str(told).startswith("chosen    2 kernels in sequence")
    for word in ("stage 1", "stage 2", spec("square", 1).name, spec("gather", 1).name, "tier      heuristic"):
        assert word in str(told)
    assert spec("gather", 0).name in told.full()
    assert [one["chosen"]["kernel"] for one in told.to_dict()["stages"]] == [one.name for one in chosen.stages]
    with pytest.raises(ProblemError, match="picks is negative"):
        registry.explain(PickProblem((4, 3), -1))


def test_each_stage_is_measured_apart(registry: tw.Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(record_module._known, current().cache_dir, Records(tmp_path))
    problem = PickProblem((5,), 7, more=True)
    first, second = registry.measure(problem, rounds=1, save=False)
    assert [one.problem["stage"] for one in (first, second)] == ["square", "gather"]
    assert all(len(one.timings) == 2 for one in (first, second))
    (alone,) = [registry.measure(staged_op.OP.stages(problem, "generic")[1], rounds=1, save=False)]
    assert alone.problem["stage"] == "gather"


def test_a_problem_runs_on_the_kernels_that_are_named(registry: tw.Registry) -> None:
    problem = PickProblem((2, 3), 9, more=True)
    report = run_problem(registry, problem, repeat=2, seed=1, verify=True, scalars={"alpha": 3.0})
    assert (report["ok"], report["tier"]) == (True, "heuristic")
    assert spec("gather", 1).name in report["kernel"]
    report = run_problem(registry, problem, repeat=1, seed=1, verify=True, spec=spec("gather", 0))
    assert report["ok"]
    assert report["kernel"] == f"{spec('square', 1).name} + {spec('gather', 0).name}"
    with pytest.raises(NoKernelError):
        run_problem(registry, problem, repeat=1, seed=1, verify=True, spec=spec("sort"))
    with pytest.raises(tw.TilewrightError, match="no scalar 'alpah'"):
        run_problem(registry, problem, repeat=1, seed=1, verify=True, scalars={"alpah": 3.0})


def test_on_a_device_the_stages_share_the_workspace_of_the_stream(
    op: None, fake_hip: FakeHip, library_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tw.Registry("gfx942")
    monkeypatch.setattr(made._judges, "_backend", Estimating(made._backend))
    # Each wants other zeros: they find them zero, whatever the other stage filled.
    made.add_library(library_of(text(spec("square", arch="gfx942"), 4096, 64)))
    made.add_library(library_of(text(spec("gather", arch="gfx942"), 1024, 512)))
    x, table, more = operands(2, 3, 4)
    there = [DeviceArray.of(hip.device(), one) for one in (x, table, more)]
    y = DeviceArray.of(hip.device(), np.zeros(7, np.float32))
    seen = DeviceArray.of(hip.device(), np.zeros(7, np.int32))
    expected = expected_of(x.reshape(-1).astype(np.float64) ** 2, table, more, 1, 1)
    with hip.device().new_stream() as stream:
        for _ in range(3):
            y.fill(0xFF)
            made.run(NAME, *there, y=y, seen=seen)
            np.testing.assert_array_equal(y.numpy(), expected)
        new, _ = made.run(NAME, *there)
        np.testing.assert_array_equal(new.numpy(), expected)
        allocated = fake_hip.calls("hipMalloc")
        fake_hip.capture(stream.handle)  # a graph may be made of it
        made.run(NAME, *there, y=y, seen=seen)
        fake_hip.capture(stream.handle, False)
        assert fake_hip.calls("hipMalloc") == allocated
    np.testing.assert_array_equal(seen.numpy(), table + 1)
    hip.device().drop_workspaces()
