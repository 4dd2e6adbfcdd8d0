"""Learned selection of attention's gradients: trained on measurements of `grad`, judged on others, asked, and used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.attention_backward.drawing import BACKWARD
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.cli.main import build_app
from tilewright.dispatch import results as stored
from tilewright.dispatch.records import machine
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import KernelSpec, plain

TARGET = "generic"
SIZES = (48, 65, 80, 100, 130, 150, 200, 260, 300, 420, 500, 700)

pytestmark = pytest.mark.usefixtures("needs_compiler")  # of the selection library, which has the estimate


def problems(first: int) -> list[AttentionBackwardProblem]:
    """Stages of `grad` of one signature; those of another `first` are others."""
    shapes = [(batch, rows + first, rows + first + more) for batch in (1, 2) for rows in SIZES for more in (0, 37)]
    return [AttentionBackwardProblem(batch, 4, rows, keys, 64, 2, window_right=0).stage("grad")
            for batch, rows, keys in shapes]  # fmt: skip


def kernels(problem: AttentionBackwardProblem) -> list[KernelSpec]:
    every = BACKWARD.proposals("full", TARGET, **BACKWARD.axes_of(problem.signature))
    return [spec for spec in every if not BACKWARD.check(spec) and spec.schedule.pipeline == "tiled"]


def law(spec: KernelSpec, problem: AttentionBackwardProblem) -> float:
    """One that the estimate does not know: which tile of keys is better depends on the length."""
    slow = (spec.schedule.tile[1] > 200) == (problem.seqlen_k < 200)
    return backend("cpu").estimate(spec, problem, 1) * (3.0 if slow else 1.0)


def store(path: Path, first: int) -> str:
    results = []
    for problem in problems(first):
        for spec in kernels(problem):
            row = stored.KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
            seconds = law(spec, problem)
            results.append(stored.Result(BACKWARD.name, plain(problem), machine(TARGET), 1, row, stored.OK, seconds))
    stored.Results(path).put(results)
    return str(path)


def told(*words: str) -> Any:
    done = CliRunner().invoke(build_app(), ["learn", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path / "cache", threads=1, models=True):
        yield tmp_path


def test_a_model_of_grad_is_trained_judged_asked_and_used(here: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    op = BACKWARD.name
    made = told("train", op, "--data", store(here / "seen.db", 0), "--trees", "20")
    unseen = store(here / "unseen.db", 3)
    judged = told("compare", op, made["path"], "--data", unseen)["scores"]
    assert judged[made["path"]]["mean"] > judged["estimate"]["mean"]
    assert {"decoder"} == set(judged[made["path"]]["families"])
    problem = problems(1)[4]
    layer = BACKWARD.words(problem)
    predicted = told("predict", op, *layer, "--model", made["path"], "--target", TARGET)["kernels"]
    times = [each["predicted"] for each in predicted]
    assert times == sorted(times)
    assert all(seconds > 0 for seconds in times)
    for asked in (problems(1)[4], problems(1)[-6]):  # lengths within those it was trained on
        specs = kernels(asked)
        chosen = Registry(TARGET, specs).select(asked)
        assert chosen.tier == "model", Registry(TARGET, specs).explain(asked).full()
        assert law(chosen.stages[0].spec, asked) <= 1.2 * min(law(spec, asked) for spec in specs)
