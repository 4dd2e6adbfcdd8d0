"""`prepare`: what a range means, the fewest kernels that cover it, and that calls then compile nothing."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import events, settings
from tilewright.errors import RequestError, TilewrightError, UnknownNameError
from tilewright.runtime import host, recording
from tilewright.runtime.plans import Plan
from tilewright.tune.cover import cover
from tilewright.tune.ranges import MOST, Ranges, options_of

# -- what a range means ------------------------------------------------------------------------------------------------


def taken(name: str, **options: Any) -> list[Any]:
    return sorted({row[name] for row in Ranges("gemm", **options).values()})


def test_a_small_range_is_taken_whole() -> None:
    assert taken("m", m=(3, 9), n=4, k=5) == list(range(3, 10))
    assert taken("m", m=range(8, 64, 8), n=4, k=5) == list(range(8, 64, 8))
    assert taken("m", m=[64, 1, 7], n=4, k=5) == [1, 7, 64]
    assert taken("m", m="8..32..8", n=4, k=5) == [8, 16, 24, 32]
    assert taken("m", m=12, n=4, k=5) == [12]


def test_a_large_one_has_its_ends_and_both_sides_of_every_alignment() -> None:
    found = taken("m", m=(1, 8192), n=4096, k=4096)
    assert {1, 2, 8191, 8192} <= set(found)
    assert 200 < len(found) < 1000
    for grain in (2, 4, 8, 64, 128):
        assert any(one % grain == 0 for one in found if one > 4000), grain
        assert any(one % grain == 1 for one in found if one > 4000), grain
    # No octave is left out, and within one there are no wide gaps.
    assert max(later / one for one, later in itertools.pairwise(found) if one >= 16) < 1.12


def test_numbers_between_the_sampled_are_never_looked_at() -> None:
    found = taken("m", m=(1, 1 << 40), n=96, k=64)
    assert {1, 1 << 40} <= set(found)
    assert len(found) < 5000


def test_several_ranges_are_sampled_with_corners_and_diagonal() -> None:
    rows = Ranges("gemm", m=(1, 4096), n=(1, 4096), k=(1, 4096)).values()
    points = {(row["m"], row["n"], row["k"]) for row in rows}
    assert len(points) == MOST
    assert set(itertools.product((1, 4096), repeat=3)) <= points
    assert sum(m == n == k for m, n, k in points) > 100
    assert rows == Ranges("gemm", m=(1, 4096), n=(1, 4096), k=(1, 4096)).values(), "it is the same every time"


def test_texts_and_tuples_of_sizes_hold_ranges() -> None:
    rows = Ranges("conv", batch=1, channels=8, filters=8, size="7..9x5", window=3, padding=1).values()
    assert [row["size"] for row in rows] == ["7x5", "8x5", "9x5"]
    rows = Ranges("conv", batch=1, channels=8, filters=8, size=((7, 8), 5), window=(3, 3)).values()
    assert [(row["size"], row["window"]) for row in rows] == [("7x5", "3x3"), ("8x5", "3x3")]
    rows = Ranges("attention", batch=1, heads_q=4, seqlen_q=1, seqlen_k=(1, 3), head_dim=64, causal=True).values()
    assert [(row["seqlen_k"], row["causal"]) for row in rows] == [(1, "true"), (2, "true"), (3, "true")]


@pytest.mark.parametrize("value", [(5, 1), (1, 2, 3), (1.5, 3), [], ["a"], "1-9", ("a", "b")])
def test_what_is_no_range_is_told(value: Any) -> None:
    with pytest.raises(RequestError) as told:
        Ranges("gemm", m=value, n=4, k=4)
    assert told.value.rule == "prepare-range"


def test_an_option_that_the_op_has_not_is_told() -> None:
    with pytest.raises(UnknownNameError, match="'rows'"):
        Ranges("gemm", rows=(1, 2))


@pytest.mark.parametrize(
    "problem",
    [
        tw.GemmProblem(m=5, n=6, k=7, dtype_a="bf16", layout="rcr", epilogue="Relu"),
        tw.ConvProblem(1, 8, 8, (7, 5), (3, 3), before=(1, 1)),
        tw.AttentionProblem(1, 4, 16, 32, 64, window_right=0),
    ],
)
def test_a_problem_is_read_back_from_its_words(problem: Any) -> None:
    from tilewright import ops

    assert ops.op(problem.op).problem(options_of(problem)) == problem


# -- the fewest kernels ------------------------------------------------------------------------------------------------


def test_the_cover_is_small_and_within_the_loss() -> None:
    specs: Any = {name: name for name in "abcd"}
    problems = [
        {"a": 1.00, "c": 1.02},
        {"a": 1.00, "c": 1.03},
        {"b": 1.00, "c": 1.01},
        {"b": 1.00, "d": 1.00},
        {"b": 1.00},
    ]
    exact = cover(problems, specs, 0.0)
    assert {str(one) for one in exact.specs} == {"a", "b"}
    assert max(exact.losses) == 0
    assert sum(exact.problems) == 5
    wide = cover(problems, specs, 0.05)
    assert len(wide.specs) == 2
    assert max(wide.losses) <= 0.05


def test_what_later_choices_made_needless_goes() -> None:
    """The greedy first choice serves the middle, and the two that the ends need serve all of it."""
    specs: Any = {name: name for name in "lmr"}
    problems = [{"l": 1.0}, {"l": 1.0, "m": 1.0}, {"l": 1.0, "m": 1.0}, {"r": 1.0, "m": 1.0}, {"r": 1.0, "m": 1.0},
                {"r": 1.0}]  # fmt: skip
    assert {str(one) for one in cover(problems, specs, 0.0).specs} == {"l", "r"}


def test_drawn_covers_hold() -> None:
    r = random.Random(5)
    names = [f"k{at}" for at in range(20)]
    specs: Any = {name: name for name in names}
    for _ in range(50):
        problems = [{name: 1 + r.random() for name in r.sample(names, r.randrange(1, 9))} for _ in range(30)]
        found = cover(problems, specs, 0.1)
        for times in problems:
            assert min(times.get(str(one), 99.0) for one in found.specs) <= 1.1 * min(times.values()) + 1e-12
        for one in found.specs:  # none is needless
            rest = [other for other in found.specs if other != one]
            assert any(
                min((times.get(str(other), 99.0) for other in rest), default=99.0) > 1.1 * min(times.values())
                for times in problems
            )


# -- prepare -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_store(tmp_path: Path, needs_compiler: None) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path / "cache", measure=False):
        yield tmp_path


def compiled(found: list[events.Event]) -> list[str]:
    return [one.name for one in found if isinstance(one, events.KernelBuilt) and not one.cached]


@pytest.mark.usefixtures("own_store")
def test_after_prepare_calls_of_the_range_compile_nothing() -> None:
    steps: list[tuple[int, int]] = []
    report = tw.prepare("gemm", m=(1, 96), n=(8, 64), k=32, progress=lambda *step: steps.append(step))
    assert report.compiled == len(report.kernels) <= report.choices
    assert report.worst <= report.loss == 0.03
    assert 0 <= report.mean <= report.worst
    assert steps[-1] == (len(report.kernels), len(report.kernels))
    assert sum(one.problems for one in report.kernels) == report.problems > 1000
    assert all(one.name in str(report) for one in report.kernels)
    json.dumps(report.to_dict())
    r = random.Random(11)
    with settings.override(missing="best_built"), events.recorded() as found:
        for _ in range(300):
            m, n = r.randrange(1, 97), r.randrange(8, 65)
            a, b = np.full((m, 32), 0.5, np.float32), np.full((32, n), 2.0, np.float32)
            assert (tw.gemm(a, b) == 32).all()
    assert compiled(found) == []
    with events.recorded() as found:
        again = tw.prepare("gemm", m=(1, 96), n=(8, 64), k=32)
    assert compiled(found) == []
    assert again.compiled == 0
    assert [one.name for one in again.kernels] == [one.name for one in report.kernels]


@pytest.mark.usefixtures("own_store")
def test_what_a_first_call_would_do_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every kernel is loaded on its device, and the smallest problem run; neither is counted as the program's."""
    ran: list[Any] = []
    run, here = Plan.run, host.device()
    loaded: list[str] = []

    def noted(plan: Plan, *given: Any) -> None:
        ran.append(plan.request.stages[0].problem)
        run(plan, *given)

    monkeypatch.setattr(Plan, "run", noted)
    monkeypatch.setattr(type(here), "load", lambda device, kernel: loaded.append(kernel.name))
    with tw.record(tmp_path / "recorded.json"):
        report = tw.prepare("gemm", m=(5, 40), n=[24, 16], k=32)
    assert [(problem.m, problem.n, problem.k) for problem in ran] == [(5, 16, 32)]
    assert sorted(loaded) == sorted(kernel.name for kernel in report.kernels)
    assert not (tmp_path / "recorded.json").exists() or not recording.read(tmp_path / "recorded.json")
    with events.recorded() as heard:
        tw.prepare("gemm", m=(5, 40), n=24, k=32, load=False)
    assert len(ran) == 1
    assert not [event for event in heard if isinstance(event, events.Warned)]


@pytest.mark.usefixtures("own_store")
def test_a_problem_that_cannot_be_run_is_prepared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> None:
        raise RequestError("no room", rule="device-memory")

    monkeypatch.setattr(Plan, "run", refuse)
    with events.recorded() as heard:
        report = tw.prepare("gemm", m=7, n=24, k=32)
    assert report.built
    assert [event.rule for event in heard if isinstance(event, events.Warned)] == ["prepare-run"]


@pytest.mark.usefixtures("own_store")
def test_a_call_run_once_is_prepared() -> None:
    def model() -> None:
        x = np.ones((17, 32), np.float32)
        tw.gemm(tw.gemm(x, np.ones((32, 24), np.float32)), np.ones((24, 8), np.float32))

    report = tw.prepare(model, build=False)
    assert report.problems == 2
    assert not report.built
    assert "nothing (build=False)" in str(report)


@pytest.mark.usefixtures("needs_compiler")
def test_files_sets_problems_and_several_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    problem = {"m": 32, "n": 32, "k": 32}
    path.write_text(json.dumps([problem]))
    one = tw.prepare("gemm", problems=path, build=False)
    assert one.problems == 1
    assert tw.prepare(tw.GemmProblem(32, 32, 32), build=False).kernels == one.kernels
    widened = tw.prepare(tw.GemmProblem(32, 32, 32), m=(1, 20), build=False)
    assert widened.problems == 20
    several = tw.prepare(
        tw.Ranges("gemm", m=(1, 4), n=8, k=8),
        [tw.Ranges("attention", batch=1, heads_q=2, seqlen_q=8, seqlen_k=(8, 10), head_dim=64)],
        build=False,
    )
    assert several.problems == 7
    assert {one.name.partition("_")[0] for one in several.kernels} == {"gemm", "attention"}
    drawn = tw.prepare("gemm", problems="random:7:12", datatype="fp32", build=False)
    assert drawn.problems > 0


@pytest.mark.usefixtures("needs_compiler")
def test_a_recording_of_several_ops_is_prepared_whole(tmp_path: Path) -> None:
    path = tmp_path / "ran.json"
    with tw.record(path):
        tw.gemm(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
        q = np.ones((1, 8, 2, 32), np.float32)
        tw.attention(q, q, q)
    report = tw.prepare(path, build=False)
    assert {one.name.partition("_")[0] for one in report.kernels} == {"gemm", "attention"}


@pytest.mark.usefixtures("needs_compiler")
def test_a_loss_of_nothing_takes_every_best() -> None:
    report = tw.prepare("gemm", m=(1, 300), n=256, k=256, loss=0, build=False)
    assert report.worst == 0
    assert len(report.kernels) <= report.choices
    assert len(tw.prepare("gemm", m=(1, 300), n=256, k=256, loss=0.5, build=False).kernels) <= len(report.kernels)


@pytest.mark.usefixtures("needs_compiler")
def test_points_that_are_no_problem_are_skipped_unless_all_are() -> None:
    options: dict[str, Any] = {"batch": 1, "seqlen_q": 4, "seqlen_k": 4, "head_dim": 64, "heads_kv": 2}
    report = tw.prepare("attention", heads_q=[2, 3, 4], **options, build=False)
    assert report.skipped == 1
    assert "skipped   1" in str(report)
    with pytest.raises(TilewrightError):
        tw.prepare("attention", heads_q=[3, 5], **options, build=False)


def test_kernels_of_a_gpu_are_worked_out_without_one(needs_compiler: None) -> None:
    report = tw.prepare("gemm", m=(1, 256), n=1024, k=1024, dtype="bf16", target="sm_90a", build=False)
    assert report.target == "sm_90a"
    assert 1 < len(report.kernels) <= report.choices
    assert report.worst <= 0.03


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ((), {}),
        (("gemm",), {}),
        (("nonsense",), {}),
        ((5,), {}),
        (("gemm", "conv"), {"m": 4}),
        ((len,), {"m": 4}),
    ],
)
def test_what_says_nothing_is_told(what: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as told:
        tw.prepare(*what, **options, build=False)
    assert told.value.rule == "prepare-what"
    assert told.value.remedy


@pytest.mark.parametrize("loss", [-0.1, "3%", True, float("nan"), 11])
def test_a_loss_that_is_none_is_told(loss: Any) -> None:
    with pytest.raises(RequestError) as told:
        tw.prepare("gemm", m=4, n=4, k=4, loss=loss, build=False)
    assert told.value.rule == "prepare-loss"
