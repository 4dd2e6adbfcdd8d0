"""The tier `model`: between what was measured and what is estimated, and only where a model is sure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright import Registry, events, ops, settings
from tilewright.arch import host
from tilewright.backends.base import backend
from tilewright.backends.cpu.gemm.packed import Packed
from tilewright.cli.main import build_app
from tilewright.dispatch import learned, model_files
from tilewright.dispatch import model as models
from tilewright.dispatch.records import Record, Timing, machine, records
from tilewright.errors import RequestError
from tilewright.learn import packed
from tilewright.ops.base import plain
from tilewright.ops.engine import engine
from tilewright.ops.features import ESTIMATE, Frame, kernel_columns, vocabulary
from tilewright.runtime.trees import NODE, Forest

GEMM = ops.op("gemm")
TARGET = "generic"
PROBLEM = GEMM.problem({"m": 200, "n": 200, "k": 200})
SIGMA = 0.05


def served() -> list[Any]:
    return [one for one in GEMM.candidates(GEMM.signature_of(PROBLEM), TARGET) if not GEMM.supports(one, PROBLEM)]


def stump(column: int, threshold: float, low: float, high: float) -> Forest:
    nodes = [(threshold, column, 1, 0.0), (np.inf, 0, 1, low), (np.inf, 0, 2, high)]
    return Forest(np.array(nodes, NODE), np.array([0], np.int32), np.array([1], np.int32), 0.0)


def model(preferred: str, **changes: Any) -> models.Model:
    """One that is sure that kernels of a pipeline take a thousandth of their estimates."""
    specs = served()
    words = vocabulary(specs, kernel_columns(GEMM.schedules))
    frame = Frame(engine(GEMM), kernel_columns(GEMM.schedules), words)
    at = words["pipeline"].index(preferred)
    assert at == 0 or at == len(words["pipeline"]) - 1, "one split tells it from the others"
    low, high = (-7.0, 0.0) if at == 0 else (0.0, -7.0)
    forest = stump(frame.columns.index("pipeline"), 0.5 if at == 0 else at - 0.5, low, high)
    here = {name: value for name, value in machine(TARGET).items() if name != "fingerprint"}
    card = models.Card(
        "gemm", (TARGET,), (here,), frame.signature_words(GEMM.signature_of(PROBLEM)), frame.columns,
        {name: tuple(each) for name, each in words.items()}, 0.0, (1e-5, 0.0, 0.0), 1e9, SIGMA, {}, {}, {},
    )  # fmt: skip
    wide = np.full(len(frame.columns), 1e30)
    return models.Model(replace(card, **changes), forest, -wide, wide)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of models of one's own, and none that ship."""
    monkeypatch.setattr(learned, "_ships_some", lambda *_: False)
    monkeypatch.setattr(model_files, "_shipped", lambda: ())
    with settings.override(cache_dir=tmp_path, threads=1, models=True):
        yield tmp_path / "models"


def put(shelf: Path, one: models.Model, name: str = "a") -> Path:
    shelf.mkdir(exist_ok=True)
    file = shelf / f"{name}{model_files.ENDING}"
    model_files.write(file, one)
    return file


def other_pipeline() -> str:
    """A pipeline the estimate does not choose, at an end of the vocabulary."""
    specs = served()
    words = vocabulary(specs, kernel_columns(GEMM.schedules))["pipeline"]
    chosen = Registry(TARGET).select(PROBLEM).spec.schedule.pipeline
    return next(one for one in (words[0], words[-1]) if one != chosen)


@pytest.mark.parametrize("name", model_files.shipped_names())
def test_a_model_that_ships_is_told_by_the_name_that_learn_finds_it_by(name: str) -> None:
    one = model_files.shipped(name)
    op = ops.op(one.card.op)
    assert one.name == name
    shown = {
        "gemm": PROBLEM,
        "conv": ops.op("conv").problem({"batch": 1, "channels": 8, "filters": 8, "size": "8x8", "window": "3x3"}),
    }
    problem = shown[op.name]
    for arch, reason in ((one.card.targets[0], f"the model {name} is not used: it was trained on "), ("gfx1100", "")):
        specs = op.candidates(op.signature_of(problem), arch)
        verdict = models.ask((one,), specs, problem, 1, [1e-6] * len(specs), {})  # no model knows a device of no words
        assert verdict.seconds is None
        assert verdict.why_not.startswith(reason)
        assert bool(verdict.why_not) == bool(reason), "models of other archs are not named"


def test_a_model_decides_and_says_how_sure_it_is(shelf: Path) -> None:
    registry = Registry(TARGET)
    assert registry.select(PROBLEM).tier == "heuristic"
    wanted = other_pipeline()
    put(shelf, model(wanted))
    chosen = registry.select(PROBLEM)  # a model that comes is noticed
    assert (chosen.tier, chosen.spec.schedule.pipeline) == ("model", wanted)
    assert (
        f"the model gemm-{TARGET} predicts it the fastest of {len(served())} kernels, give or take 5%" in chosen.reason
    )
    told = registry.explain(PROBLEM)
    assert told.decided == f"model: {chosen.reason}"
    predicted = sorted((one.predicted_seconds, one.name) for one in told.candidates if one.predicted_seconds)
    assert len(predicted) == len(served())
    assert predicted[0] == (chosen.seconds, chosen.name)
    second = next(one for one in told.candidates if one.name in chosen.reason)
    assert second.predicted_seconds is not None
    assert f"would take {second.predicted_seconds / chosen.seconds:.2f} times as long" in chosen.reason
    assert second.predicted_seconds == predicted[1][0]
    assert any("predicted" in reason for reason in second.reasons)
    assert "predicted" in str(told)
    assert told.model == ""


def test_kernels_the_estimate_gives_no_hope_are_not_asked_about(shelf: Path) -> None:
    guessed = Registry(TARGET).select(PROBLEM).spec
    put(shelf, model(other_pipeline(), far=1.0))
    chosen = Registry(TARGET).select(PROBLEM)
    assert (chosen.tier, chosen.spec) == ("model", guessed)
    assert "the estimate gives no other a hope" in chosen.reason
    told = Registry(TARGET).explain(PROBLEM)
    assert [one.name for one in told.candidates if one.predicted_seconds is not None] == [guessed.name]


def sees_the_estimate(preferred: str) -> models.Model:
    """One that has it among its features."""
    plain_one = model(preferred)
    columns = (*plain_one.card.columns[:-1], ESTIMATE, plain_one.card.columns[-1])
    probes = tuple(
        {"problem": plain(PROBLEM), "kernel": one.to_dict(), "threads": 1,
         "seconds": backend("cpu").estimate(one, PROBLEM, 1)}
        for one in served()
    )  # fmt: skip
    wide = np.full(len(columns), 1e30)
    return models.Model(replace(plain_one.card, columns=columns, probes=probes), plain_one.forest, -wide, wide)


def test_a_model_that_sees_the_estimate_says_nothing_once_that_has_changed(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = other_pipeline()
    file = put(shelf, sees_the_estimate(wanted))
    chosen = Registry(TARGET).select(PROBLEM)
    assert (chosen.tier, chosen.spec.schedule.pipeline) == ("model", wanted)
    estimate = Packed.estimate
    monkeypatch.setattr(Packed, "estimate", lambda *asked: 1.001 * estimate(*asked))
    put(shelf, model_files.read(file.read_bytes(), "a"), "b")
    file.unlink()
    told = Registry(TARGET).explain(PROBLEM)
    assert Registry(TARGET).select(PROBLEM).tier == "heuristic"
    assert "the analytic estimate, one of its features, has changed since it was trained" in told.model


@pytest.mark.parametrize("probe", [None, {}, {"problem": {"m": "x"}, "kernel": {}, "threads": 1, "seconds": 1.0}])
def test_a_model_with_no_sense_in_what_it_remembers_is_not_believed(shelf: Path, probe: Any) -> None:
    one = sees_the_estimate(other_pipeline())
    put(shelf, models.Model(replace(one.card, probes=() if probe is None else (probe,)), one.forest, one.low, one.high))
    assert Registry(TARGET).select(PROBLEM).tier == "heuristic"


def test_estimates_are_of_the_device_that_is_spoken_of() -> None:
    """A sweep may be learned from elsewhere, on a machine with other caches."""
    here = host.l2_bytes()
    with host.speaking_of({"flags": "x", "l2_bytes": 3 * here}):
        assert host.l2_bytes() == 3 * here
        with host.speaking_of({"l2_bytes": 50 << 20}):  # a GPU's
            assert host.l2_bytes() == here
    assert host.l2_bytes() == here


def test_a_model_that_goes_is_not_asked_any_more(shelf: Path) -> None:
    registry = Registry(TARGET)
    file = put(shelf, model(other_pipeline()))
    assert registry.select(PROBLEM).tier == "model"
    with settings.override(models=False):
        assert registry.select(PROBLEM).tier == "heuristic"
        assert "the setting `models` is off" in str(registry.explain(PROBLEM))
    file.unlink()
    assert registry.select(PROBLEM).tier == "heuristic"
    assert registry.explain(PROBLEM).model == ""


def test_what_was_measured_comes_first(shelf: Path) -> None:
    put(shelf, model(other_pipeline()))
    slow = served()[-1]
    timing = Timing(slow.digest, slow.name, slow.to_dict(), 1.0, 0.0, 0.1)
    records().put(Record("gemm", plain(PROBLEM.dense()), 1, TARGET, slow.digest, (timing,), {}, {}))
    chosen = Registry(TARGET).select(PROBLEM)
    assert (chosen.tier, chosen.spec) == ("measured", slow)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"devices": ({"model": "another"},)}, "it was trained on model another; this device is model "),
        ({"devices": ({},)}, "it was trained on no device;"),  # results of nowhere are of no device
        ({"signatures": ("layout rrr",)}, "it has not seen fp32 x fp32, results in fp32"),
        ({"signatures": ("layout rrr",)}, ", epilogues without exp or tanh"),  # the model's word is a number
    ],
    ids=["device", "no device", "signature", "epilogue"],
)
def test_where_a_model_says_nothing_the_estimate_decides_and_explain_says_why(
    shelf: Path, changes: dict[str, Any], why: str
) -> None:
    put(shelf, model(other_pipeline(), **changes))
    registry = Registry(TARGET)
    assert registry.select(PROBLEM).tier == "heuristic"
    told = registry.explain(PROBLEM)
    assert why in told.model
    assert f"model     {told.model}" in str(told)
    assert told.to_dict()["model"] == told.model


def test_devices_are_compared_in_the_words_that_differ() -> None:
    card = model(other_pipeline(), devices=({"model": "EPYC", "l2_bytes": 1, "flags": "a"},))
    said = card.silent(
        ops.op("gemm").candidates(GEMM.signature_of(PROBLEM), TARGET)[0], {"model": "EPYC", "flags": "b"}
    )
    assert said == "it was trained on l2_bytes 1, flags a; this device is flags b"


def test_a_model_for_another_arch_is_not_spoken_of(shelf: Path) -> None:
    """Else `explain` for an AMD GPU would name the model of an H200."""
    put(shelf, model(other_pipeline(), targets=("x86_64_v3",)))
    explanation = Registry(TARGET).explain(PROBLEM)
    assert explanation.selection is not None
    assert explanation.selection.tier == "heuristic"
    assert explanation.model == ""
    assert "\nmodel " not in str(explanation)


def test_kernels_newer_than_a_model_are_set_beside_its_choice(shelf: Path) -> None:
    """By the estimate of both; a model that knows none of the kernels says nothing."""
    best = Registry(TARGET).select(PROBLEM)
    preferred = other_pipeline()
    made = model(preferred)
    pipelines = made.card.vocabulary["pipeline"]
    older = {**made.card.vocabulary, "pipeline": tuple(one for one in pipelines if one != best.spec.schedule.pipeline)}
    specs = served()
    estimates = np.array([backend("cpu").estimate(one, PROBLEM, 1) for one in specs])
    even = models.Model(replace(made.card, vocabulary=older), stump(0, 1e30, 0.0, 0.0), made.low, made.high)
    put(shelf, even)
    chosen = Registry(TARGET).select(PROBLEM)
    assert (chosen.tier, chosen.spec) == ("heuristic", best.spec)  # by its estimate: the model does not know it
    first = next(at for at, one in enumerate(specs) if one.schedule.pipeline in older["pipeline"])
    told = even.predict(specs, PROBLEM, 1, estimates, even.card.devices[0])
    assert not isinstance(told, str)
    np.testing.assert_allclose(told / told[first], [
        estimates[at] / estimates[first] if one.schedule.pipeline not in older["pipeline"] else 1.0
        for at, one in enumerate(specs)
    ])  # fmt: skip
    assert f"newer than the model gemm-{TARGET}, whose choice {specs[first].name} is estimated" in chosen.reason
    said = {each.name: each for each in Registry(TARGET).explain(PROBLEM).candidates}
    assert said[best.name].predicted_seconds is None
    assert said[specs[first].name].predicted_seconds is not None
    assert f"{estimates[first] / estimates.min():.2f} times" in said[specs[first].name].reasons[0]
    put(shelf, models.Model(replace(made.card, vocabulary={**older, "pipeline": ()}), even.forest, made.low, made.high))
    assert Registry(TARGET).select(PROBLEM).tier == "heuristic"
    assert "it has not seen" in Registry(TARGET).explain(PROBLEM).model


def test_a_problem_beyond_its_training_is_the_estimate_s(shelf: Path) -> None:
    narrow = model(other_pipeline())
    rows = narrow.frame.rows(served(), PROBLEM, 1)
    put(shelf, models.Model(narrow.card, narrow.forest, rows.min(axis=0) - 1.0, rows.max(axis=0) + 1.0))
    registry = Registry(TARGET)
    assert registry.select(PROBLEM).tier == "model"
    far = GEMM.problem({"m": 200_000, "n": 2000, "k": 2000})
    assert registry.select(far).tier == "heuristic"
    assert "and it was trained on" in registry.explain(far).model
    aligned = GEMM.problem({"m": 199, "n": 256, "k": 195})
    assert registry.select(aligned).tier == "model", "rows that are aligned better are nothing new"


def test_with_more_threads_than_it_was_trained_on_it_says_nothing(shelf: Path) -> None:
    narrow = model(other_pipeline())
    low, high = narrow.low.copy(), narrow.high.copy()
    low[-1], high[-1] = 1, 2
    put(shelf, models.Model(narrow.card, narrow.forest, low, high))
    registry = Registry(TARGET)
    assert registry.select(PROBLEM, threads=2).tier == "model"
    assert registry.select(PROBLEM, threads=3).tier == "heuristic"
    assert "the work is for 3 units" in registry.explain(PROBLEM, threads=3).model


def test_a_damaged_model_and_one_of_an_absent_op_change_nothing(shelf: Path) -> None:
    file = put(shelf, model(other_pipeline()), "b")
    data = file.read_bytes()
    (shelf / f"a{model_files.ENDING}").write_bytes(data[: len(data) // 2])
    with events.recorded() as heard:
        assert Registry(TARGET).select(PROBLEM).tier == "model", "the sound one is used"
    assert [one.rule for one in heard if isinstance(one, events.Warned)] == ["model-file"]
    file.unlink()
    put(shelf, model(other_pipeline(), op="absent"), "c")
    with events.recorded() as heard:
        assert Registry(TARGET).select(PROBLEM).tier == "heuristic"
    assert "absent" in " ".join(one.message for one in heard if isinstance(one, events.Warned))


def test_a_folder_and_a_link_to_nothing_are_named_and_the_others_are_asked(shelf: Path) -> None:
    put(shelf, model(other_pipeline()))
    (shelf / f"a-folder{model_files.ENDING}").mkdir()
    (shelf / f"a-link{model_files.ENDING}").symlink_to("nowhere")
    registry = Registry(TARGET)
    assert registry.select(PROBLEM).tier == "model"
    remarks = "\n".join(registry.explain(PROBLEM).models)
    assert f"a-folder{model_files.ENDING} is a folder" in remarks
    assert f"a-link{model_files.ENDING} is a link to nowhere, which is not there" in remarks
    assert "Errno" not in remarks
    said = " ".join(CliRunner().invoke(build_app(), ["doctor", "--json"]).output.split())
    assert "is a link to nowhere" in said


def test_a_damaged_model_is_named_by_explain_and_doctor(shelf: Path) -> None:
    file = put(shelf, model(other_pipeline()))
    assert Registry(TARGET).explain(PROBLEM).models == ()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    part = file.with_suffix(".part")
    part.write_bytes(data)
    part.replace(file)  # as files are put there: the folder tells that it changed
    told = Registry(TARGET).explain(PROBLEM)
    assert told.selection is not None
    assert told.selection.tier != "model"
    for text in (str(told), told.full(), str(told.to_dict()["models"])):
        assert str(file) in text
        assert "is no model that can be used" in text
    done = CliRunner().invoke(build_app(), ["doctor", "--json"])
    (finding,) = [one for one in json.loads(done.stdout)["findings"] if one["part"] == "models"]
    assert finding["ok"] is False
    assert str(file) in finding["text"]


def test_a_model_before_one_that_ships_is_named(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ships = model(other_pipeline())
    ships.name = "gemm-that-ships"
    monkeypatch.setattr(model_files, "_shipped", lambda: (ships,))
    assert Registry(TARGET).explain(PROBLEM).models == ()
    file = put(shelf, model(other_pipeline()))
    told = Registry(TARGET).explain(PROBLEM)
    assert told.models == (f"{file} is used instead of gemm-that-ships, which ships with this version",)
    assert "gemm-that-ships" in " ".join(str(told).split())
    done = CliRunner().invoke(build_app(), ["doctor", "--json"])
    (finding,) = [one for one in json.loads(done.stdout)["findings"] if one["part"] == "models"]
    assert finding["ok"] is None
    assert "gemm-that-ships" in finding["text"]
    with settings.override(models=False):
        assert Registry(TARGET).explain(PROBLEM).models == ()


def test_a_model_that_may_never_end_is_not_read(shelf: Path) -> None:
    """A pipe would be waited for and a device fill the memory, wherever one selects; /dev/null stands for both."""
    put(shelf, model(other_pipeline()), "b")
    endless = shelf / f"a{model_files.ENDING}"
    endless.symlink_to("/dev/null")
    with events.recorded() as heard:
        assert Registry(TARGET).select(PROBLEM).tier == "model", "the sound one is used"
    assert ["no regular file" in one.message for one in heard if isinstance(one, events.Warned)] == [True]
    done = CliRunner().invoke(build_app(), ["learn", "evaluate", "gemm", str(endless)])
    assert done.exit_code == 2, done.output
    assert "no regular file" in " ".join(done.output.split())
    with pytest.raises(RequestError, match="no regular file"):
        packed.read(Path("/dev/null"))


def test_strides_do_not_change_what_a_model_says(shelf: Path) -> None:
    put(shelf, model(other_pipeline()))
    registry = Registry(TARGET)
    wide = GEMM.problem({"m": 200, "n": 200, "k": 200, "a_stride": 333})
    assert registry.select(wide).seconds == registry.select(PROBLEM).seconds


CODE = """
import sys
from tilewright import Registry, ops
from tilewright.arch import host
from tilewright.backends.base import backend
from tilewright.backends.cpu.gemm.packed import Packed
from tilewright.dispatch import learned
learned._ships_some = lambda *_: False
Registry("generic").select(ops.op("gemm").problem({"m": 9, "n": 9, "k": 9}))
print([name for name in sys.modules if name in ("tilewright.dispatch.model", "tilewright.runtime.trees")])
"""


def test_without_models_nothing_is_imported_for_them(shelf: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=settings.environment()
    )
    assert done.stdout.strip() == "[]"


def test_of_one_kernel_no_model_is_read(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles often have one of a signature: reading and arranging a model was a fifth of a first call."""
    wanted = other_pipeline()
    put(shelf, model(wanted))
    first, second, *_ = sorted(served(), key=lambda spec: spec.schedule.pipeline == wanted)
    read: list[int] = []
    voices = learned.voices

    def noted(arch: Any, threads: int, specs: Any) -> Any:
        read.append(len(specs))
        return voices(arch, threads, specs)

    monkeypatch.setattr(learned, "voices", noted)
    alone = Registry(TARGET, [first]).select(PROBLEM)
    assert (alone.spec.digest, alone.tier, alone.reason, read) == (first.digest, "heuristic", "the only kernel", [])
    Registry(TARGET, [first, second]).select(PROBLEM)
    assert read == [2]
