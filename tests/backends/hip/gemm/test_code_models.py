"""The table of main loops: what it says of kernels, how estimates take it, and that kernels do not depend on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import events, packaged
from tilewright.backends.base import backend
from tilewright.backends.hip.gemm import code_models
from tilewright.build import promises
from tilewright.dispatch import Registry
from tilewright.inspect import amdgpu
from tilewright.native.judge import judge
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

CDNA = ("gfx90a", "gfx942", "gfx950")


def pool(arch: str, dtype: str = "fp16", layout: str = "rcr") -> list[KernelSpec]:
    gemm = op("gemm")
    return [s for s in gemm.proposals("default", arch, datatypes=(dtype,), layouts=(layout,)) if not gemm.check(s)]


def table() -> dict[str, Any]:
    models: dict[str, Any] = json.loads(packaged.read_text(code_models.PACKAGE, code_models.TABLE))
    return models


def test_every_line_is_of_a_kernel_of_the_default_pool() -> None:
    """A line whose tile the pool no longer has would never be read: benchmarks/amd_code_models.py writes it anew."""
    known = {code_models.main_loop(spec) for arch in CDNA for spec in pool(arch)}
    assert set(table()["models"]) <= known
    assert "not a measurement" in table()["note"]


def test_main_loops_of_large_tiles_reach_four_fifths_of_matrix_issue() -> None:
    small = "tile=64x64x"
    shares = {key: model["matrix_issue"] for key, model in table()["models"].items() if small not in key}
    assert len(shares) >= 12
    assert {key: share for key, share in shares.items() if share < 0.8} == {}


def test_what_happens_to_sums_does_not_change_a_main_loop() -> None:
    spec = next(s for s in pool("gfx942") if s.schedule.pipeline == "compv4")
    other = replace(spec, signature=replace(spec.signature, dtype_c="fp32"), schedule=replace(spec.schedule, split_k=2))
    assert code_models.main_loop(other) == code_models.main_loop(spec)
    assert code_models.main_loop(replace(spec, arch="gfx90a")) != code_models.main_loop(spec)
    deeper = replace(spec, schedule=replace(spec.schedule, tile=(128, 128, 64)))
    assert code_models.main_loop(deeper) != code_models.main_loop(spec)


@pytest.mark.parametrize("pipeline", ["compv4", "tiled"])
def test_estimates_take_the_model(pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = next(s for s in pool("gfx942") if s.schedule.pipeline == pipeline)
    problem = tw.GemmProblem(m=8192, n=8192, k=8192, layout="rcr", dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")

    def seconds(of_peak: float | None) -> float:
        models: dict[str, Any] = {} if of_peak is None else {code_models.main_loop(spec): {"of_peak": of_peak}}
        monkeypatch.setattr(code_models, "_models", lambda: models)
        asked = judge((spec,), (0,))
        if asked is None:
            pytest.skip("estimates are compiled: there is no C++ compiler here")
        return float(asked.estimates(problem, 1, np.ones(1, bool))[0])

    assert seconds(0.4) > 1.5 * seconds(0.8)
    assert seconds(None) < seconds(0.4)  # no line: what a tile of this shape is taken to reach, which is more
    assert seconds(None) == seconds(1.0)  # a model takes away, and never adds


def test_a_kernel_does_not_depend_on_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = next(s for s in pool("gfx942") if s.schedule.pipeline == "tiled")
    source = backend("hip").render(spec).text
    monkeypatch.setattr(code_models, "_models", dict)
    assert backend("hip").render(spec).text == source
    assert code_models.issue(spec) == 0


def test_explain_says_that_it_is_a_model() -> None:
    problem = tw.GemmProblem(m=8192, n=8192, k=8192, layout="rcr", dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")
    registry = Registry("gfx942")
    text = str(registry.explain(problem))
    chosen = registry.select(problem).spec
    expected = code_models.remark(chosen)
    assert expected == "" or expected in text
    modelled = [spec for spec in pool("gfx942") if code_models.model_of(spec) is not None]
    assert modelled
    assert all(code_models.WORDS in code_models.remark(spec) for spec in modelled)


def test_a_listing_that_the_model_does_not_know_ends_no_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreadable(*_: Any) -> None:
        raise ValueError("s_wait_new")

    monkeypatch.setattr(amdgpu, "inspect", unreadable)
    with events.recorded() as heard:
        facts = promises.read_code(pool("gfx942")[0], tmp_path / "kernel.so")
    assert list(facts) == ["waits"]
    assert facts["waits"].startswith("undecided: ")
    assert [event.rule for event in heard if isinstance(event, events.Warned)] == ["code-model"]


def test_a_tile_whose_main_loop_does_not_reach_four_fifths_is_not_in_the_default_pool() -> None:
    """256x256 of compv3 on gfx950: 0.72 by the model of its code (18 November 2026), beside 1.00 of 256x128."""
    tiles = {arch: {spec.schedule.tile for spec in pool(arch) if spec.schedule.pipeline == "compv3"} for arch in CDNA}
    assert [arch for arch in CDNA if (256, 256, 32) in tiles[arch]] == ["gfx90a", "gfx942"]
