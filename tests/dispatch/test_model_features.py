"""A model knows its features by name: their order, families that join an op and words that it gains move nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright import Registry, ops, settings
from tilewright.arch import arch
from tilewright.arch.host import speaking_of
from tilewright.cli.main import build_app
from tilewright.dispatch import learned, model_files
from tilewright.dispatch.model import Array, Model
from tilewright.errors import ModelError
from tilewright.learn.data import estimates_of, units_of
from tilewright.ops.engine import engine
from tilewright.runtime.trees import Forest

NAMES = model_files.shipped_names()
DRAWN = 25
SCORES = Path(__file__).parents[1] / "golden" / "model_scores.json"

Question = tuple[Any, list[Any], Array]  # a problem, the kernels that serve it and their estimates


@lru_cache(maxsize=8)
def questions(name: str) -> tuple[Question, ...]:
    model = model_files.shipped(name)
    op, target = ops.op(model.card.op), model.card.targets[0]
    drawn: list[Question] = []
    with speaking_of(model.card.devices[0]):
        for values in engine(op).random(4711, DRAWN, arch(target).backend):
            typed = {"datatype": "bf16"} if op.name == "gemm" or target.startswith("sm_") else {}
            problem = op.problem({**typed, **values})
            specs = [one for one in op.candidates(op.signature_of(problem), target) if not op.supports(one, problem)]
            if len(specs) > 1:
                drawn.append((problem, specs, estimates_of(specs, problem, 2)))
    return tuple(drawn)


def predictions(model: Model, name: str) -> list[Any]:
    units = int(model.high[-1])
    told = [model.predict(specs, p, units, estimates, model.card.devices[0]) for p, specs, estimates in questions(name)]
    assert any(not isinstance(one, str) for one in told)
    return [one if isinstance(one, str) else one.tolist() for one in told]


def shuffled(model: Model, seed: int) -> Model:
    """The same model as another version might have written it: with its columns in another order."""
    columns = list(model.card.columns)
    random.Random(seed).shuffle(columns)
    place = np.array([columns.index(name) for name in model.card.columns], np.int32)
    nodes = model.forest.nodes.copy()
    nodes["feature"] = place[nodes["feature"]]
    was = [model.card.columns.index(name) for name in columns]
    forest = replace(model.forest, nodes=nodes)
    return Model(replace(model.card, columns=tuple(columns)), forest, model.low[was], model.high[was])


def written(tmp_path: Path, model: Model) -> bytes:
    file = tmp_path / f"one{model_files.ENDING}"
    model_files.write(file, model)
    return file.read_bytes()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of models of one's own, and none that ship."""
    monkeypatch.setattr(learned, "_ships_some", lambda *_: False)
    monkeypatch.setattr(model_files, "_shipped", lambda: ())
    with settings.override(cache_dir=tmp_path, threads=1, models=True):
        (tmp_path / "models").mkdir()
        yield tmp_path / "models"


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_a_model_s_columns_does_not_matter(name: str, tmp_path: Path) -> None:
    model = model_files.shipped(name)
    other = shuffled(model, 1)
    again = model_files.read(written(tmp_path, other), "shuffled")
    assert again.card.columns == again.frame.columns != other.card.columns
    assert predictions(again, name) == predictions(model, name)


@dataclass(frozen=True)
class JoinedSchedule:
    """Of a family that a package brings, with a field of its own and one that others have."""

    pipeline: str
    depth_of_queue: int = 4
    tile_m: int = 64


@pytest.mark.parametrize("name", NAMES)
def test_a_family_that_joins_an_op_shifts_no_feature(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_files.shipped(name)
    before, file = predictions(model, name), written(tmp_path, model)
    kind = type(ops.op(model.card.op))
    schedules = ops.op(model.card.op).schedules
    monkeypatch.setattr(kind, "schedules", property(lambda self: (JoinedSchedule, *reversed(schedules))))
    again = model_files.read(file, "as before")
    assert "depth_of_queue" not in again.frame.columns
    assert predictions(again, name) == before


def test_a_word_that_an_op_gains_in_the_middle_shifts_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(one for one in NAMES if one.startswith("conv"))
    model = model_files.shipped(name)
    before, file = predictions(model, name), written(tmp_path, model)
    kind: Any = type(engine(ops.op("conv")))
    words = kind.problem_words["epilogue"]
    more = (*words[:2], "Sine", *words[2:])
    monkeypatch.setattr(kind, "problem_words", {**kind.problem_words, "epilogue": more})
    again = model_files.read(file, "as before")
    assert predictions(again, name) == before
    problem, specs, estimates = questions(name)[0]
    told = again.predict(
        specs, replace(problem, epilogue="Sine"), int(again.high[-1]), estimates, again.card.devices[0]
    )
    assert told == "it has not seen Sine"


def changed(model: Model, **changes: Any) -> Model:
    """Of a model that asks nothing, so that any columns fit."""
    card = replace(model.card, **changes)
    nodes = np.array([(np.inf, 0, 0, 0.0)], model.forest.nodes.dtype)
    forest = Forest(nodes, np.array([0], np.int32), np.array([0], np.int32), 0.0)
    wide = np.full(len(card.columns), 1e30)
    return Model(card, forest, -wide, wide)


def odd_models() -> dict[str, tuple[dict[str, Any], str]]:
    conv, gemm = (model_files.shipped(next(one for one in NAMES if one.startswith(op))).card for op in ("conv", "gemm"))
    words = {name: tuple(each) for name, each in conv.vocabulary.items()}
    return {
        "missing": (
            {"columns": tuple(one for one in gemm.columns if one not in ("log2_m", "tiles"))}, "it lacks log2_m, tiles"
        ),
        "unknown": ({"columns": (*gemm.columns, "phase_of_moon")}, "it has, and gemm has not, phase_of_moon"),
        "another op's": ({"op": "conv"}, "it has, and conv has not, a_by_rows"),
        "twice": ({"columns": (*gemm.columns, gemm.columns[0])}, f"it names twice {gemm.columns[0]}"),
        "numbers for words": (
            {"op": "conv", "columns": conv.columns, "vocabulary": {k: v for k, v in words.items() if k != "epilogue"}},
            "it has numbers for the words of epilogue",
        ),
        "words for numbers": ({"vocabulary": {**gemm.vocabulary, "log2_m": ("x",)}}, "for the numbers of log2_m"),
    }  # fmt: skip


@pytest.mark.parametrize("how", odd_models())
def test_a_model_whose_features_are_not_the_op_s_is_refused_by_name(how: str, tmp_path: Path) -> None:
    changes, why = odd_models()[how]
    made = changed(model_files.shipped(next(one for one in NAMES if one.startswith("gemm"))), **changes)
    with pytest.raises(ModelError) as caught:
        model_files.read(written(tmp_path, made), "a file")
    assert f"its features are not those of {made.card.op} in this version" in str(caught.value)
    assert why in str(caught.value)


def test_it_is_named_by_explain_and_doctor(shelf: Path) -> None:
    changes, why = odd_models()["missing"]
    file = shelf / f"mine{model_files.ENDING}"
    model_files.write(file, changed(model_files.shipped(NAMES[-1]), **changes))
    told = Registry("generic").explain(ops.op("gemm").problem({"m": 200, "n": 200, "k": 200}))
    (remark,) = told.models
    assert str(file) in remark
    assert why in remark
    done = CliRunner().invoke(build_app(), ["doctor", "--json"])
    (finding,) = [one for one in json.loads(done.stdout)["findings"] if one["part"] == "models"]
    assert finding["ok"] is False
    assert why in finding["text"]


def test_of_kernels_with_a_field_it_has_no_feature_for_only_the_estimate_tells() -> None:
    """Unless the field has its default, as kernels were before there was the field."""
    name = NAMES[-1]
    model, (_, specs, _) = model_files.shipped(name), questions(name)[0]
    schedule = specs[0].schedule
    grown = make_dataclass(
        "Grown", [("swizzle", int, 1)], bases=(type(schedule),), frozen=True, namespace={"__module__": __name__}
    )
    values = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
    as_before, new = (replace(specs[0], schedule=grown(**values, swizzle=size)) for size in (1, 2))
    assert model.frame.unknown_words(as_before) == []
    assert model.frame.unknown_words(new) == ["swizzle 2"]
    bare = replace(specs[0], schedule=NoWords())
    assert "kernels without pipeline" in model.frame.unknown_words(bare)


@dataclass(frozen=True)
class NoWords:
    """Without the word that tells kernels of other families apart; the rest is what the op's features ask for."""

    tile: tuple[int, int, int] = (8, 8, 8)
    warp_tile: tuple[int, int, int] = (8, 8, 8)
    warp_grid: tuple[int, int] = (1, 1)

    def label(self) -> str:
        return "none"


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_is_what_it_was_in_training(name: str) -> None:
    """Asked here and not in every process: the probes of a model took a sixth of a first call.

    Where this fails, the estimate has changed: the model is to be trained again.
    """
    model = model_files.shipped(name)
    assert model.ships
    assert model.card.probes
    assert model.outdated == ""


@pytest.mark.parametrize("name", NAMES)
def test_features_are_what_they_were_in_training(name: str) -> None:
    """Scores of the kernels a card remembers, as they were when its model began to ship: no feature was redefined."""
    model = model_files.shipped(name)
    op, scores = ops.op(model.card.op), []
    for probe in model.card.probes:
        problem, spec = op.problem_from_dict(dict(probe["problem"])), op.spec_from_dict(dict(probe["kernel"]))
        units = units_of(spec.arch, int(probe["threads"]))
        scores.append(float(model.forest.score(model.frame.rows([spec], problem, units, np.ones(1)))[0]))
    assert scores == pytest.approx(json.loads(SCORES.read_text(encoding="utf-8"))[name], rel=1e-9, abs=1e-12)
