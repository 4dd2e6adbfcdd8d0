"""Learned selection: features, forests in C and in NumPy, models as data, training that sees no held-out problem."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import ops
from tilewright.backends.base import backend
from tilewright.dispatch import model as models
from tilewright.dispatch import model_files
from tilewright.dispatch.results import OK, KernelRow, Result
from tilewright.errors import ModelError, RequestError
from tilewright.learn import evaluate, packed
from tilewright.learn.data import collect, demand_enough, matrix, near
from tilewright.ops.base import plain
from tilewright.ops.engine import engine
from tilewright.ops.features import ESTIMATE, Frame, kernel_columns, vocabulary
from tilewright.runtime.trees import NODE, Forest, by_sets
from tilewright.tune import problem_sets

GEMM = ops.op("gemm")
TARGET = "x86_64_v3"
MACHINE = {"fingerprint": "f" * 16, "model": "A CPU", "arch": TARGET}


def forest(seed: int, trees: int = 9, width: int = 7, deep: int = 5) -> Forest:
    draw = np.random.default_rng(seed)
    nodes: list[Any] = []
    roots, depths = [], []
    for _ in range(trees):
        roots.append(len(nodes))
        nodes.append(None)
        depth, todo = 0, [(len(nodes) - 1, 0)]
        while todo:
            at, level = todo.pop()
            depth = max(depth, level)
            if level == deep or draw.random() < 0.2:
                nodes[at] = (np.inf, 0, at, draw.normal())
                continue
            left = len(nodes)
            nodes += [None, None]
            nodes[at] = (draw.normal(), draw.integers(width), left, 0.0)
            todo += [(left, level + 1), (left + 1, level + 1)]
        depths.append(depth)
    return Forest(np.array(nodes, NODE), np.array(roots, np.int32), np.array(depths, np.int32), float(draw.normal()))


def walked(one: Forest, row: Any) -> float:
    """The reference: a tree at a time, a node at a time."""
    total = one.base
    for root in one.roots:
        at = int(root)
        while one.nodes["left"][at] != at:
            value, node = row[one.nodes["feature"][at]], one.nodes[at]
            at = int(node["left"]) + int(value > node["threshold"])
        total += float(one.nodes["value"][at])
    return total


@given(st.integers(0, 2**32), st.integers(0, 40))
@settings(max_examples=40)
def test_c_and_numpy_score_as_a_walk_does(seed: int, count: int) -> None:
    one = forest(seed)
    assert one.wrong(7) == ""
    rows = np.random.default_rng(seed + 1).normal(size=(count, 7)).astype(np.float32)
    rows[:: max(1, count // 3), 2] = np.nan
    expected = [walked(one, row) for row in rows]
    np.testing.assert_allclose(one.score(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(one._by_numpy(rows), expected, rtol=1e-12)


@given(st.integers(0, 2**32), st.sampled_from([1, 5, 63, 64, 65, 130, 256, 257, 600]))
@settings(max_examples=30, deadline=None)
def test_by_sets_kernels_score_as_rows_do(seed: int, count: int) -> None:
    """Two features of the problem, two of the kernel, two of both and the units; some kernels of those at hand."""
    one = forest(seed, deep=1 + seed % 8)
    sets = by_sets(one, 7, 2)
    assert sets is not None
    draw = np.random.default_rng(seed + 1)
    problem, units = draw.normal(size=2).astype(np.float32), float(np.float32(draw.normal()))
    kernel, both = draw.normal(size=(2, count)).astype(np.float32), draw.normal(size=(2, count))
    both[:, :: max(1, count // 3)] = np.nan
    # A value that is a threshold goes left.
    both[0, 0] = one.nodes["threshold"][one.nodes["feature"] == 4].min(initial=0.5)
    asked = np.flatnonzero(draw.random(count) < 0.8)
    rows = np.empty((count, 7), np.float32)
    rows[:, :2], rows[:, 2:4], rows[:, 4:6], rows[:, 6] = problem, kernel.T, both.T, units
    own = sets.kernel_features(kernel)
    desk = sets.desk(len(problem), own, len(both))
    desk.problem[:], desk.both[:], desk.kernel_places[: len(asked)] = problem, both, asked
    found = sets.ask(desk, own, len(asked), units)
    np.testing.assert_allclose(found, one.score(rows[asked]), rtol=1e-12)
    np.testing.assert_allclose(found, [walked(one, row) for row in rows[asked]], rtol=1e-12)


def test_forests_that_sets_cannot_hold_are_walked() -> None:
    assert by_sets(forest(3, deep=9, trees=30), 7) is None
    one = next(found for seed in range(9) if len((found := forest(seed, trees=1)).nodes) > 6)
    nodes = one.nodes.copy()
    first, second = np.flatnonzero(nodes["left"] != np.arange(len(nodes)))[-2:]
    nodes["left"][first] = nodes["left"][second]  # they share their children, and others have no parent
    shared = replace(one, nodes=nodes)
    assert shared.wrong(7) == "", "a walk ends"
    assert by_sets(shared, 7) is None
    assert by_sets(replace(forest(3), roots=forest(3).roots[::-1].copy()), 7) is None


def spoiled(name: str) -> Forest:
    one = forest(3)
    nodes = one.nodes.copy()
    inner = int(np.flatnonzero(nodes["left"] != np.arange(len(nodes)))[0])
    if name == "a walk without end":
        nodes["left"][inner] = inner
        return replace(one, nodes=nodes)
    if name == "a child outside":
        nodes["left"][inner] = len(nodes) - 1
        return replace(one, nodes=nodes)
    if name == "a feature outside":
        nodes["feature"][inner] = 7
        return replace(one, nodes=nodes)
    if name == "no number":
        nodes["value"][inner] = np.nan
        return replace(one, nodes=nodes)
    if name == "a root outside":
        return replace(one, roots=one.roots + np.int32(len(nodes)))
    if name == "endless depth":
        return replace(one, depths=one.depths + np.int32(1 << 20))
    return replace(one, nodes=nodes["threshold"].copy())


@pytest.mark.parametrize(
    "name",
    [
        "a walk without end",
        "a child outside",
        "a feature outside",
        "no number",
        "a root outside",
        "endless depth",
        "another kind",
    ],
)
def test_a_forest_that_would_read_elsewhere_is_told(name: str) -> None:
    assert spoiled(name).wrong(7)


def results(count: int = 30, seed: int = 5) -> list[Result]:
    """Times that follow a law the estimate does not know: the model can learn it."""
    found = []
    for problem in problem_sets.problems(GEMM, f"random:{seed}:{count}", "cpu"):
        for spec in GEMM.candidates(GEMM.signature_of(problem), TARGET):
            if GEMM.supports(spec, problem):
                continue
            estimate = backend("cpu").estimate(spec, problem, 2)
            seconds = estimate * (2.0 if spec.schedule.pipeline == "direct" else 1.0)
            kernel = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
            found.append(Result("gemm", plain(problem), MACHINE, 2, kernel, OK, seconds))
    return found


def test_features_are_finite_named_and_the_same_for_a_kernel_in_any_company() -> None:
    problem = GEMM.problem({"m": 70, "n": 50, "k": 30})
    specs = [one for one in GEMM.candidates(GEMM.signature_of(problem), TARGET) if not GEMM.supports(one, problem)]
    frame = Frame(engine(GEMM), kernel_columns(GEMM.schedules), vocabulary(specs, kernel_columns(GEMM.schedules)))
    rows = frame.rows(specs, problem, 2)
    assert rows.shape == (len(specs), len(frame.columns))
    assert np.isfinite(rows).all()
    assert len(set(frame.columns)) == len(frame.columns)
    alone = np.concatenate([frame.rows([one], problem, 2) for one in specs])
    np.testing.assert_array_equal(rows, alone)
    assert len({tuple(row) for row in rows.tolist()}) == len(specs), "no two kernels look alike"
    seen = Frame(engine(GEMM), kernel_columns(GEMM.schedules), frame.words, estimated=True)
    guessed = np.linspace(2.0, 1.0, len(specs))
    whole = seen.rows(specs, problem, 2, guessed)
    np.testing.assert_array_equal(np.delete(whole, seen.columns.index(ESTIMATE), axis=1), rows)
    np.testing.assert_allclose(whole[:, seen.columns.index(ESTIMATE)], guessed, rtol=1e-6)
    strange = replace(specs[0], schedule=replace(specs[0].schedule))
    assert frame.unknown_words(strange) == []
    assert Frame(engine(GEMM), kernel_columns(GEMM.schedules), {}).unknown_words(specs[0])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_shipped_model_says_is_what_its_forest_says_of_whole_rows(seed: int) -> None:
    """Asked by sets, from what is kept of kernels, or by rows made for the purpose: the same seconds."""
    for model in model_files._shipped():
        op, target = ops.op(model.card.op), model.card.targets[0]
        kind = "cpu" if target.startswith("x86") else "cuda"
        units, device = int(model.high[-1]), model.card.devices[0]
        spoken = 0
        for values in engine(op).random(seed, 12, kind):
            given = {"datatype": "bf16"} if op.name == "gemm" or kind == "cuda" else {}
            problem = op.measured_as(op.problem({**values, **given}))
            specs = [one for one in op.candidates(problem.signature, target) if not op.supports(one, problem)]
            if len(specs) < 2:
                continue
            estimates = [backend(kind).estimate(one, problem, 2) for one in specs]
            for _ in range(2):  # what is kept is used the second time
                told = models.ask([model], specs, problem, units, estimates, device)
                if told.seconds is None:
                    continue
                spoken += 1
                known, unseen = np.array(estimates), list(told.unseen)  # the second: kernels newer than the model
                known[unseen] = np.inf
                near = model.near(known)
                guessed = np.array(estimates)[near]
                rows = model.frame.rows([specs[one] for one in near], problem, units, guessed)
                said = models.ahead(model.card.trust, guessed)
                plain_way = models.rough(model.card.rough, problem) * np.exp(model.forest._by_numpy(rows) + said)
                np.testing.assert_allclose(told.seconds[near], plain_way, rtol=1e-12)
                assert np.isinf(np.delete(told.seconds, [*near, *unseen])).all()
                best = near[int(np.argmin(told.seconds[near]))]
                beside = told.seconds[best] * np.array(estimates)[unseen] / estimates[best]
                np.testing.assert_allclose(told.seconds[unseen], beside, rtol=1e-12)
        assert spoken, f"{model.card.name} was asked of nothing it knows"


def test_data_leaves_out_what_is_held_out_and_says_how_much() -> None:
    held = problem_sets.held_out(GEMM)[0]
    near = replace(held, m=held.m, a_stride=0, b_stride=0, c_stride=0)
    rows = results(12)
    spec = GEMM.fallback_spec(GEMM.signature_of(near), TARGET)
    leak = Result(
        "gemm", plain(near), MACHINE, 2, KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict()), OK, 1e-3
    )
    data = collect(GEMM, [*rows, leak, replace(rows[0], status="wrong", seconds=None)])
    assert data.left_out["held out, or near a problem that is"] >= 1
    assert data.left_out["status wrong"] == 1
    assert not problem_sets.leaking(GEMM, [one.problem for one in data.groups])
    assert near not in [one.problem for one in data.groups]
    with pytest.raises(RequestError) as caught:
        demand_enough(data)
    assert caught.value.rule == "too-little-data"
    x, groups = matrix(data, data.frame())
    assert len(x) == len(groups) == data.rows


def test_a_model_learns_what_the_estimate_does_not_know(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    data = collect(GEMM, results(48))
    quick = Settings(trees=30, leaves=15, least_rows=3, folds=3)
    made = train(data, quick)
    guessed, learned = (evaluate.score(one) for one in (evaluate.by_estimate(data), evaluate.by_model(made, data)))
    assert learned.mean > guessed.mean
    assert learned.mean > 0.99
    assert made.card.data["problems"] == len(data.groups)
    file = tmp_path / f"one{model_files.ENDING}"
    model_files.write(file, made)
    assert file.stat().st_size < 1 << 20
    again = model_files.read(file.read_bytes(), "one")
    x, _ = matrix(data, again.frame)
    np.testing.assert_array_equal(again.forest.score(x), made.forest.score(x))
    assert again.card.data == made.card.data
    first = file.read_bytes()
    model_files.write(file, train(data, quick))
    assert file.read_bytes() == first, "the same data is the same model"
    _check_verdicts(again, data)
    _check_tampering(file)


def test_a_model_may_begin_from_the_estimate(tmp_path: Path) -> None:
    """Without a tree that says anything it says what the estimate says, in training, in a file and in selection."""
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    data = collect(GEMM, results(48))
    mute: dict[str, Any] = {"trees": 1, "common_trees": 1, "rate": 1e-9, "folds": 3, "far": 1e9}
    made = train(data, Settings(**mute, trust=1.0))
    assert made.card.trust == 1.0
    file = tmp_path / f"one{model_files.ENDING}"
    model_files.write(file, made)
    again = model_files.read(file.read_bytes(), "one")
    by_estimate = evaluate.by_estimate(data)
    assert evaluate.by_model(again, data) == by_estimate
    assert made.card.metrics["cross_validation"] == evaluate.score(by_estimate).to_dict()
    group = max(data.groups, key=lambda one: len(one.specs))
    device = again.card.devices[0]
    told = again.predict(list(group.specs), group.problem, group.units, group.estimates, device)
    assert not isinstance(told, str)
    np.testing.assert_allclose(told / told.min(), group.estimates / group.estimates.min(), rtol=1e-6)
    half = train(data, Settings(**{**QUICK, "far": 1e9}, trust=0.5))
    assert evaluate.score(evaluate.by_model(half, data)).mean > 0.99
    blind = train(data, Settings(**QUICK, trust=0.5, estimated=False))
    assert blind.card.trust == 0.0, "one that does not see the estimate does not rest on it"
    model_files.write(file, replace_trust(blind, 0.5))
    with pytest.raises(ModelError, match="begins from an estimate that it does not know"):
        model_files.read(file.read_bytes(), "one")
    model_files.write(file, replace_trust(made, 7.0))
    with pytest.raises(ModelError, match="is no number that a model has"):
        model_files.read(file.read_bytes(), "one")


def replace_trust(model: models.Model, trust: float) -> models.Model:
    return models.Model(replace(model.card, trust=trust), model.forest, model.low, model.high)


QUICK: dict[str, Any] = {"trees": 20, "leaves": 15, "least_rows": 3, "folds": 3}


def lucky(count: int, seed: int) -> list[Result]:
    """Times that are chance alone: nothing can be learned from them, only remembered."""
    draw = np.random.default_rng(seed)
    return [replace(one, seconds=1e-5 * float(np.exp(draw.normal()))) for one in results(count, seed)]


def test_a_model_that_goes_on_is_not_judged_by_what_its_start_has_seen() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    quick = Settings(**QUICK, far=1e9)
    seen, more = collect(GEMM, lucky(40, 5)), collect(GEMM, lucky(80, 6))
    first = train(seen, quick)
    assert len(first.card.data["seen"].split()) == len(seen.groups)
    remembered = evaluate.score(evaluate.by_model(first, seen)).mean
    honest = first.card.metrics["cross_validation"]["mean"]
    assert remembered > honest + 0.1, "the trees have the answers of what they have seen"
    again = train(seen, quick, start=first)
    assert again.card.metrics["cross_validation"] == first.card.metrics["cross_validation"]
    assert again.card.sigma == pytest.approx(first.card.sigma)
    assert "without the trees it goes on from, whose model has seen all but 0" in again.card.metrics["judged"]
    # Some are new: those alone count, and the start has a say in them.
    both = train(collect(GEMM, [*lucky(40, 5), *lucky(80, 6)]), quick, start=first)
    assert both.card.metrics["cross_validation"]["problems"] == len(more.groups)
    assert f"on {len(more.groups)} problems" in both.card.metrics["judged"]
    assert both.card.metrics["cross_validation"]["mean"] < remembered - 0.1
    assert set(both.card.data["seen"].split()) == {*seen.seen, *more.seen}
    assert both.card.data["start"]["digest"] == seen.digest
    # One of an older version does not say what it has seen.
    first.card = replace(first.card, data={name: value for name, value in first.card.data.items() if name != "seen"})
    unknown = train(more, quick, start=first)
    assert "does not say what it has seen" in unknown.card.metrics["judged"]
    assert unknown.card.data["seen"] is None
    fresh = train(more, quick)
    assert unknown.card.metrics["cross_validation"]["problems"] == fresh.card.metrics["cross_validation"]["problems"]


def test_a_model_that_goes_on_knows_what_its_start_knew() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    rows = results(60)
    bf16 = [one for one in rows if one.problem["dtype_a"] == "bf16"]
    first, quick = train(collect(GEMM, rows), Settings(**QUICK)), Settings(**QUICK)
    small = [one for one in rows if one not in bf16 and one.problem["m"] < 3000]
    made = train(collect(GEMM, small), quick, start=first)
    assert set(made.card.signatures) >= set(first.card.signatures)
    assert (made.low <= first.low).all()
    assert (made.high >= first.high).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"op": "conv"}, "is for conv, not gemm"),
        ({"targets": ("generic",)}, "is not for x86_64_v3"),
        ({"devices": ({"model": "Another CPU", "arch": TARGET},)}, "on another device than these data (model A CPU"),
        ({"data": {"holdout": "0" * 16}}, "was kept from other problems"),
        ({"vocabulary": {}}, "does not know"),
        ({"probes": ()}, "saw another analytic estimate"),
    ],
    ids=["op", "target", "device", "holdout", "words", "estimate"],
)
def test_nothing_goes_on_from_a_model_of_another_kind(changed: dict[str, Any], said: str) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    data, quick = collect(GEMM, results(30)), Settings(**{**QUICK, "trees": 2})
    start = train(data, quick)
    start.card = replace(start.card, **changed)
    with pytest.raises(RequestError) as caught:
        train(data, quick, start=start)
    assert caught.value.rule == "warm-start"
    assert said in caught.value.message
    assert caught.value.remedy


def test_packed_results_are_read_back_and_the_same_results_are_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "some.json.gz"
    rows = results(6)
    failed = replace(rows[0], status="wrong", seconds=None)
    assert packed.write(file, "gemm", [*rows, failed], {"made": "by a test"}) == len(rows)
    first = file.read_bytes()
    packed.write(file, "gemm", rows, {"made": "by a test"})
    assert file.read_bytes() == first
    again = packed.read(file)
    assert [(one.problem, one.kernel.digest, one.threads, one.device) for one in again] == [
        (one.problem, one.kernel.digest, one.threads, one.device) for one in rows
    ]
    np.testing.assert_allclose([one.seconds or 0.0 for one in again], [one.seconds or 0.0 for one in rows], atol=1e-10)
    assert collect(GEMM, again).words == collect(GEMM, rows).words


def test_packed_results_that_are_none_are_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "some.json.gz"
    packed.write(file, "gemm", results(2))
    sound = file.read_bytes()
    data = json.loads(gzip.decompress(sound))
    data["groups"][0]["times"][0][1] = -1.0
    lacking = {name: value for name, value in data.items() if name != "kernels"}
    texts = [data, lacking, [], {**data, "format": 9}, {**data, "groups": [{}]}, {**data, "devices": []}]
    for one in (b"", sound[:-20], b"text", *(gzip.compress(json.dumps(each).encode()) for each in texts)):
        file.write_bytes(one)
        with pytest.raises(RequestError) as caught:
            packed.read(file)
        assert caught.value.rule == "results-file"
    with pytest.raises(RequestError):
        packed.read(tmp_path / "absent.json.gz")


def test_a_kernel_measured_twice_counts_once_with_the_mean() -> None:
    rows = results(6)
    data = collect(GEMM, [*rows, *(replace(one, seconds=3 * (one.seconds or 0.0)) for one in rows)])
    once = collect(GEMM, rows)
    assert data.rows == once.rows
    for one, other in zip(data.groups, once.groups, strict=True):
        np.testing.assert_allclose(one.seconds, 2 * other.seconds)


def test_a_second_measurement_takes_luck_from_the_oracle() -> None:
    data = collect(GEMM, results(12))
    lucky = data.groups[0]
    at = int(np.argmax(lucky.seconds))
    seconds = lucky.seconds.copy()
    seconds[at] = lucky.seconds.min() / 2
    first = replace(data, groups=(replace(lucky, seconds=seconds), *data.groups[1:]))
    guessed = evaluate.by_estimate(first)
    assert guessed[0].efficiency < 1.0
    told = evaluate.again(guessed, first, data)
    assert told[0].efficiency > guessed[0].efficiency
    assert [one.efficiency for one in told[1:]] == [one.efficiency for one in guessed[1:]]
    nothing = evaluate.again(guessed, first, replace(data, groups=()))
    assert [one.efficiency for one in nothing] == [one.efficiency for one in guessed]


def test_far_kernels_are_left_out_and_the_oracle_stays() -> None:
    data = collect(GEMM, results(12))
    close = near(data, 1.2)
    assert 0 < close.rows < data.rows
    for one, other in zip(close.groups, data.groups, strict=True):
        assert one.oracle == other.oracle
        assert (one.estimates <= 1.2 * other.estimates.min()).all()


def _check_verdicts(model: models.Model, data: Any) -> None:
    group = data.groups[0]
    estimates = group.estimates.tolist()
    known = {"model": "A CPU", "arch": TARGET}
    told = models.ask([model], group.specs, group.problem, group.units, estimates, known)
    assert told.seconds is not None
    assert len(told.seconds) == len(group.specs)
    other = models.ask([model], group.specs, group.problem, group.units, estimates, {"model": "B", "arch": TARGET})
    assert other.seconds is None
    assert "it was trained on" in other.why_not
    far = GEMM.problem({"m": 10**6, "n": 10**6, "k": 10**6, "layout": group.problem.layout})
    beyond = models.ask([model], group.specs, far, group.units, estimates, known)
    assert beyond.seconds is None
    assert "trained on" in beyond.why_not
    assert models.ask([], group.specs, group.problem, 2, estimates, known).why_not == ""


def _check_tampering(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(parts["card.json"])
    head["card"]["sigma"] = 0.0
    broken = [
        {**parts, "card.json": json.dumps(head).encode()},
        {**parts, "card.json": b"[]"},
        {**parts, "nodes.npy": parts["roots.npy"]},
        {name: data for name, data in parts.items() if name != "low.npy"},
        {**parts, "low.npy": b"\x80\x04\x95."},
    ]
    for one in broken:
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in one.items():
                archive.writestr(name, data)
        with pytest.raises(ModelError) as caught:
            model_files.read(file.read_bytes(), "broken")
        assert caught.value.rule == "model-file"
    for data in (b"", b"PK\x03\x04", b"x" * 1000):
        with pytest.raises(ModelError):
            model_files.read(data, "broken")


def test_a_card_remembers_estimates_of_every_kind_of_kernel() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn.train import Settings, train

    data = collect(GEMM, results(30))
    made = train(data, Settings(**{**QUICK, "trees": 2}))
    kinds = {spec.schedule.pipeline for group in data.groups for spec in group.specs}
    assert {one["kernel"]["schedule"]["pipeline"] for one in made.card.probes} == kinds
    assert made.outdated == ""
    blind = train(data, Settings(**{**QUICK, "trees": 2}, estimated=False))
    assert (blind.card.probes, blind.outdated) == ((), "")
    assert ESTIMATE not in blind.card.columns
