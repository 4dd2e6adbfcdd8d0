"""What a model is judged by: no number of it may be better than the truth."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.learn.test_learn import GEMM, MACHINE, QUICK, TARGET, lucky, results
from tilewright.dispatch import model as models
from tilewright.dispatch import model_files
from tilewright.errors import ModelError, RequestError
from tilewright.learn import evaluate
from tilewright.learn.data import LEAST_PROBLEMS, collect, demand_enough, near
from tilewright.tune import problem_sets

OTHER = {**MACHINE, "fingerprint": "e" * 16, "model": "Another CPU"}


@pytest.fixture
def train() -> Any:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn import train as training

    return lambda data, start=None, **changed: training.train(data, training.Settings(**{**QUICK, **changed}), start)


def test_a_problem_is_in_one_fold_whatever_its_threads_and_devices(train: Any) -> None:
    """Times that are chance alone, each problem four times: who sees a problem's others remembers the answer."""
    rows = lucky(60, 11)
    four = [*rows, *(replace(one, threads=1) for one in rows)]
    four += [replace(one, device=OTHER) for one in four]
    data = collect(GEMM, four)
    assert len(data.groups) == 4 * len(collect(GEMM, rows).groups)
    alone = train(collect(GEMM, rows), far=1e9).card.metrics["cross_validation"]["mean"]
    found = train(data, far=1e9).card.metrics["cross_validation"]["mean"]
    assert found < alone + 0.1


def test_a_few_problems_measured_often_are_few() -> None:
    rows = results(8)
    data = collect(GEMM, [replace(one, threads=threads) for one in rows for threads in range(1, 6)])
    assert len(data.groups) >= LEAST_PROBLEMS
    with pytest.raises(RequestError) as caught:
        demand_enough(data)
    assert caught.value.rule == "too-little-data"


def test_a_choice_is_first_only_if_nothing_that_was_measured_is_faster() -> None:
    data = collect(GEMM, results(12))
    groups = []
    for one in data.groups:
        seconds = np.full(len(one.specs), 2.0)
        seconds[int(np.argmax(one.estimates))] = 1.0  # the fastest is the one the estimate thinks least of
        groups.append(replace(one, seconds=seconds))
    asked = near(replace(data, groups=tuple(groups)), 1.0)
    found = evaluate.choices(asked, np.zeros(asked.rows))
    missed = [one for one in found if one.efficiency < 1]
    assert missed
    assert not [one for one in missed if one.rank < 5]
    assert evaluate.score(found).top1 == pytest.approx(1 - len(missed) / len(found))


def test_of_kernels_that_took_as_long_any_is_the_fastest() -> None:
    one = collect(GEMM, results(2)).groups[0]
    data = replace(collect(GEMM, results(2)), groups=(replace(one, seconds=np.full(len(one.specs), 1e-3)),))
    for chosen in range(len(one.specs)):
        scores = np.ones(len(one.specs))
        scores[chosen] = 0.0
        assert evaluate.score(evaluate.choices(data, scores)).top1 == 1.0


def test_a_second_measurement_is_of_as_many_threads() -> None:
    rows = results(12)
    first = collect(GEMM, rows)
    slower = [replace(one, threads=1, seconds=100 * (one.seconds or 0.0) ** 2) for one in rows]
    guessed = evaluate.by_estimate(first)
    told = evaluate.again(guessed, first, collect(GEMM, [*rows, *slower]))
    assert [one.efficiency for one in told] == [one.efficiency for one in guessed]


def test_without_folds_a_card_claims_no_cross_validation(train: Any) -> None:
    data = collect(GEMM, results(30))
    told = train(data, trees=2).card.metrics
    silent = train(data, trees=2, folds=0)
    assert "cross_validation" in told
    assert "cross_validation" not in silent.card.metrics
    assert silent.card.metrics["estimate"] == told["estimate"]
    assert not silent.unsure


def test_a_second_measurement_is_of_the_same_device() -> None:
    rows = results(12)
    first = collect(GEMM, rows)
    there = [
        replace(one, device={**one.device, "fingerprint": "another"}, seconds=100 * (one.seconds or 0.0) ** 2)
        for one in rows
    ]
    guessed = evaluate.by_estimate(first)
    told = evaluate.again(guessed, first, collect(GEMM, there))
    assert [one.efficiency for one in told] == [one.efficiency for one in guessed]


def test_nothing_goes_on_from_a_model_that_does_not_say_what_it_was_kept_from(train: Any) -> None:
    data = collect(GEMM, results(30))
    start = train(data, trees=2)
    start.card = replace(start.card, data={name: one for name, one in start.card.data.items() if name != "holdout"})
    with pytest.raises(RequestError) as caught:
        train(data, start=start, trees=2)
    assert caught.value.rule == "warm-start"


def test_a_device_is_known_only_if_something_was_learned_from_it() -> None:
    """One that measured nothing but problems that are held out taught nothing."""
    rows = results(12)
    held = problem_sets.held_out(GEMM)[:3]
    gone = {one.problem for one in collect(GEMM, rows, held=()).groups[:3]}
    elsewhere = [replace(one, device=OTHER) for one in rows if GEMM.problem_from_dict(dict(one.problem)) in gone]
    data = collect(GEMM, [*rows, *elsewhere], held=[*held, *gone])
    assert [one["model"] for one in data.devices] == [MACHINE["model"]]


def test_a_model_that_chooses_worse_than_the_estimate_says_nothing(train: Any, tmp_path: Path) -> None:
    """Times that follow the estimate, but for chance in the little that is learned from."""
    good = train(collect(GEMM, results(48)))
    assert good.card.metrics["estimate"]["mean"] < good.card.metrics["cross_validation"]["mean"]
    assert not good.unsure
    group = collect(GEMM, results(48)).groups[0]
    known = {"model": "A CPU", "arch": TARGET}
    ask = (group.specs, group.problem, group.units, group.estimates.tolist(), known)
    assert models.ask([good], *ask).seconds is not None
    bad = models.Model(
        replace(good.card, metrics={**good.card.metrics, "estimate": {"mean": 1.0}, "cross_validation": {"mean": 0.6}}),
        good.forest, good.low, good.high,
    )  # fmt: skip
    told = models.ask([bad], *ask)
    assert told.seconds is None
    assert "its choices reached 60.0% of the fastest, the estimate's 100.0%" in told.why_not
    before = replace(bad.card, metrics={**good.card.metrics, "others": {"the model gemm-of-ours": {"mean": 2.0}}})
    beaten = models.Model(before, good.forest, good.low, good.high)
    assert "the model gemm-of-ours's 200.0%" in beaten.unsure, "a model that was there already and chose better"
    # The next one at hand is asked instead; and what the card says comes back from its file.
    assert models.ask([bad, good], *ask).seconds is not None
    file = tmp_path / f"bad{model_files.ENDING}"
    model_files.write(file, bad)
    assert model_files.read_file(file).unsure == bad.unsure


def signed(changed: dict[str, Any]) -> bytes:
    """A model that ships with another card, and the digest of that: whoever can write a file can do so."""
    place = Path(models.__file__).parent / "models" / f"gemm-zen4-avx2{model_files.ENDING}"
    with zipfile.ZipFile(place) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(parts["card.json"])
    head["card"] |= changed
    arrays = {name: np.load(io.BytesIO(parts[f"{name}.npy"])) for name in model_files.ARRAYS}
    head["digest"] = model_files.digest_of(head["card"], arrays)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {**parts, "card.json": json.dumps(head).encode()}.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    "changed",
    [
        {"targets": [None]}, {"targets": "x86_64_v3"}, {"signatures": [{}]}, {"signatures": [["fp32"]]},
        {"devices": ["x"]}, {"devices": "x"}, {"devices": [1e308]}, {"sigma": []}, {"sigma": "nan"}, {"sigma": 1e308},
        {"far": {}}, {"far": "x"}, {"far": 0.5}, {"far": float("nan")}, {"base": [[1]]}, {"base": float("inf")},
        {"vocabulary": 0}, {"vocabulary": {"pipeline": 1}}, {"metrics": None}, {"data": []}, {"probes": 3}, {"op": {}},
        {"metrics": {"cross_validation": {}, "estimate": {}}},
        {"metrics": {"cross_validation": {"mean": "x"}, "estimate": {"mean": 1}}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_card_by_another_hand_is_told_when_it_is_read_not_when_a_kernel_is_chosen(changed: dict[str, Any]) -> None:
    assert model_files.read(signed({}), "as it was").card.op == "gemm"
    with pytest.raises(ModelError) as caught:
        model_files.read(signed(changed), "hostile")
    assert caught.value.rule == "model-file"


def test_probes_of_kernels_that_cannot_be_silence_a_model() -> None:
    probe = dict(model_files.read(signed({}), "as it was").card.probes[0])
    schedule = {**probe["kernel"]["schedule"], "warp_tile": [0, 0, 0], "tile": [0, 0, 0]}
    hostile = model_files.read(
        signed({"probes": [{**probe, "kernel": {**probe["kernel"], "schedule": schedule}}]}), "hostile"
    )
    assert hostile.outdated


def test_a_model_is_judged_beside_those_that_are_there(train: Any) -> None:
    """On problems they have not seen, and where they would be asked: a model for another device is no rival."""
    data = collect(GEMM, results(48))
    made, unseen = train(data), frozenset[str]
    told = evaluate.beside(made, [made], data, lambda one: unseen())
    assert set(told.card.metrics["others"]) == {f"the model {made.name}"}
    score = told.card.metrics["others"][f"the model {made.name}"]
    assert score["problems"] == len(data.groups)
    assert "others" not in evaluate.beside(made, [made], data, lambda one: frozenset(data.seen)).card.metrics, (
        "it has seen all"
    )
    elsewhere = models.Model(
        replace(made.card, devices=({"model": "another", "arch": TARGET},)), made.forest, made.low, made.high
    )
    assert "others" not in evaluate.beside(made, [elsewhere], data, lambda one: unseen()).card.metrics
