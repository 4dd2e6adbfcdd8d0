"""`tilewright learn`: trained on stores and tables, judged, compared, asked."""

from __future__ import annotations

import csv
import json
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import ops, settings
from tilewright.backends.base import backend
from tilewright.cli.learn import model_of
from tilewright.cli.main import build_app
from tilewright.dispatch import model as models
from tilewright.dispatch import records
from tilewright.dispatch import results as stored
from tilewright.dispatch.records import machine
from tilewright.ops.base import plain
from tilewright.tune import export, problem_sets

GEMM = ops.op("gemm")
TARGET = "generic"
SHIPPED = Path(models.__file__).parent / "models"


def shell(*words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(build_app(), ["learn", *words])
    assert done.exit_code == status, done.output
    return done


def data(*words: str) -> Any:
    return json.loads(shell(*words, "--json").stdout)


def measured(word: str, most: int = 1000, target: str = TARGET) -> list[stored.Result]:
    """Times that follow a law the estimate does not know."""
    found = []
    here = machine(target) or {"fingerprint": "f" * 16, "model": "another"}
    for problem in problem_sets.problems(GEMM, word, "cpu")[:most]:
        for spec in GEMM.candidates(GEMM.signature_of(problem), target):
            if GEMM.supports(spec, problem):
                continue
            seconds = backend("cpu").estimate(spec, problem, 1) * (3.0 if spec.schedule.pipeline == "direct" else 1.0)
            kernel = stored.KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
            found.append(stored.Result("gemm", plain(problem.dense()), here, 1, kernel, stored.OK, seconds))
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path / "cache", threads=1, models=True):
        yield tmp_path


def store(path: Path, word: str) -> str:
    stored.Results(path).put(measured(word))
    return str(path)


def test_without_lightgbm_training_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    done = shell("train", "gemm", status=1)
    assert "[missing-extra]" in done.stderr
    assert "tilewright[learn]" in done.stderr


def test_a_set_of_problems_is_predicted_into_a_table_that_compare_judges(here: Path) -> None:
    """By a model that ships, for a CPU that need not be this one; times follow its estimate."""
    model, target, file, unseen = "gemm-zen4-avx512", "x86_64_v4_bf16", here / "predicted.csv", here / "unseen.csv"
    export.write(unseen, measured("random:12:16", target=target))
    words = ("predict", "gemm", "--problems", "random:12:16", "--model", model, "--target", target)
    told = data(*words, "--output", str(file))
    chosen = told["chosen"]
    assert len(chosen) == len({one["problem"] for one in chosen}) == 16 - sum(told["silent"].values()) > 8
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    first = [row["kernel_name"] for row in rows if row["rank"] == "1"]
    assert first == [one["kernel"] for one in chosen]
    scores = data("compare", "gemm", str(file), model, "--data", str(unseen))["scores"]
    assert scores[str(file)]["problems"] == len(chosen)
    # The kernel each problem's first row names, by hand.
    times = {(row["problem"], row["kernel"]): float(row["latency_ms"]) for row in csv.DictReader(unseen.open())}
    best = {problem: min(ms for (other, _), ms in times.items() if other == problem) for problem, _ in times}
    firsts = [(row["problem"], row["kernel_name"]) for row in rows if row["rank"] == "1"]
    by_hand = [best[problem] / times[problem, kernel] for problem, kernel in firsts]
    assert scores[str(file)]["mean"] == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-4)


def test_what_is_wrong_with_a_table_of_predictions_is_told(here: Path) -> None:
    model, target, unseen, few = "gemm-zen4-avx512", "x86_64_v4_bf16", here / "unseen.csv", here / "few.csv"
    export.write(unseen, measured("random:12:2", target=target))
    words = ("predict", "gemm", "--problems", "64,64,64", "--model", model, "--target", target, "--output")
    shell(*words, str(few))
    assert "none of the problems" in shell("compare", "gemm", str(few), "--data", str(unseen), status=1).stderr
    few.write_text("mine")
    assert "[predictions-file]" in shell("compare", "gemm", str(few), "--data", str(unseen), status=1).stderr
    assert "[foreign-file]" in shell(*words, str(few), status=1).stderr
    assert few.read_text() == "mine"
    assert "[table-kind]" in shell(*words, str(here / "few.parquet"), status=1).stderr
    alone = ("predict", "gemm", "--m", "64", "--n", "64", "--k", "64", "--model", model, "--table", str(here / "x.csv"))
    assert "--problems" in shell(*alone, status=1).stderr


def test_train_evaluate_compare_and_predict(here: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    seen = store(here / "seen.db", "random:11:36")
    made = data("train", "gemm", "--data", seen, "--trees", "12")
    assert made["path"].startswith(str(here / "cache" / "models"))
    assert made["card"]["metrics"]["cross_validation"]["families"]
    assert json.loads(Path(made["path"]).with_suffix(".card.json").read_text()) == made["card"]
    table = here / "unseen.csv"
    export.write(table, measured("random:12:24"))
    words = ("gemm", made["path"], "--data", str(table))
    found = data("evaluate", *words)
    assert found["model"]["mean"] > found["estimate"]["mean"]
    assert found["model"]["problems"] == 24
    assert sum(one["problems"] for one in found["model"]["families"].values()) == 24
    assert not found["trained_on_these"]
    picture = here / "p.svg"
    said = shell("evaluate", *words, "--plot", str(picture))
    assert "decode" in said.stdout
    circles = [one for one in xml.parse(picture).iter() if one.tag.endswith("circle")]
    assert len(circles) == 24
    other = here / f"other{Path(made['path']).suffix}"
    data("train", "gemm", "--data", seen, "--trees", "2", "--output", str(other))
    both = data("compare", "gemm", made["path"], str(other), "--data", str(table))["scores"]
    assert both[made["path"]] == found["model"]
    assert both["estimate"] == found["estimate"]
    assert set(both) == {made["path"], str(other), "estimate"}
    shell("train", "gemm", "--data", seen, "--trees", "2", "--start", str(other), "--output", str(other))
    _predicts_and_chooses(made["path"])


def _predicts_and_chooses(path: str) -> None:
    sizes = ("--m", "300", "--n", "400", "--k", "500")
    told = data("predict", "gemm", *sizes, "--model", path, "--target", TARGET)["kernels"]
    assert [one["predicted"] for one in told] == sorted(one["predicted"] for one in told)
    done = CliRunner().invoke(build_app(), ["explain", "gemm", *sizes, "--target", TARGET, "--json"])
    chosen = json.loads(done.stdout)["chosen"]
    assert (chosen["tier"], chosen["kernel"]) == ("model", told[0]["kernel"]), "what was trained is used"
    done = shell("predict", "gemm", *sizes, "--model", path, "--target", TARGET, "--datatype", "bf16", status=1)
    assert "[model-silent]" in done.stderr


def test_held_out_problems_teach_nothing_and_are_counted(here: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    mixed = here / "mixed.db"
    store(mixed, "random:11:36")
    held = measured("holdout", 5)
    stored.Results(mixed).put(held)
    made = data("train", "gemm", "--data", str(mixed), "--trees", "2", "--output", str(here / "m.twmodel"))
    assert made["card"]["data"]["left_out"]["held out, or near a problem that is"] >= len(held)
    done = shell("train", "gemm", "--data", store(here / "h.db", "random:11:5"), status=1)
    assert "[too-little-data]" in done.stderr


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("evaluate", "gemm", "absent.twmodel"), "model-file"),
        (("evaluate", "gemm", "text.twmodel"), "model-file"),
        (("compare", "gemm", "text.twmodel"), "model-file"),
        (("train", "gemm", "--data", "absent.db"), "results-file"),
        (("train", "gemm", "--data", "text.db"), "results-file"),
        (("train", "gemm", "--data", "text.csv"), "results-file"),
        (("train", "gemm"), "too-little-data"),
        (("train", "gem"), "op-name"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_cannot_be_used_is_one_clear_error(
    words: tuple[str, ...], rule: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] == "train":
        pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    monkeypatch.chdir(here)
    for name in ("text.twmodel", "text.db", "text.csv"):
        (here / name).write_text("nothing of the kind")
    done = CliRunner().invoke(build_app(), ["learn", *words])
    assert done.exit_code in (1, 2), done.output
    assert f"[{rule}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_model_is_not_written_over(here: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    seen = store(here / "seen.db", "random:11:36")
    mine = here / "mine.twmodel"
    mine.write_text("mine")
    done = CliRunner().invoke(
        build_app(), ["learn", "train", "gemm", "--data", seen, "--trees", "1", "--output", str(mine)]
    )
    assert done.exit_code == 2, done.output
    assert mine.read_text() == "mine"
    assert "[model-name]" in shell("train", "gemm", "--data", seen, "--output", str(here / "m.bin"), status=1).stderr


def test_a_picture_is_not_written_over_another_s_file(here: Path) -> None:
    model, table = str(SHIPPED / "gemm-zen4-avx2.twmodel"), here / "t.csv"
    export.write(table, measured("random:12:3"))
    words = ("evaluate", "gemm", model, "--data", str(table), "--plot")
    mine = here / "mine.svg"
    mine.write_text("mine")
    assert "[foreign-file]" in shell(*words, str(mine), status=1).stderr
    assert mine.read_text() == "mine"
    problems = here / "problems.json"
    problems.write_text("[]")
    assert "[plot-name]" in shell(*words, str(problems), status=1).stderr
    assert problems.read_text() == "[]"
    assert "[output-folder]" in shell(*words, str(here / "no" / "p.svg"), status=2).stderr
    shell(*words, str(here / "p.svg"))
    shell(*words, str(here / "p.svg"))


def test_nothing_to_pack_is_an_error_and_writes_nothing(here: Path) -> None:
    seen = store(here / "seen.db", "random:11:2")
    done = shell("pack", "conv", "--data", seen, "--output", str(here / "c.json.gz"), status=1)
    assert "[too-little-data]" in done.stderr
    assert not (here / "c.json.gz").exists()
    assert "[output-folder]" in shell("pack", "gemm", "--data", seen, "--output", str(here / "x" / "c.json.gz"),
                                      status=2).stderr  # fmt: skip


def test_a_place_for_a_model_is_looked_at_before_training(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    from tilewright.learn import train as training

    def never(*_: Any) -> Any:
        raise AssertionError("it was trained")

    monkeypatch.setattr(training, "train", never)
    seen = store(here / "seen.db", "random:11:36")
    (here / "plain").write_text("a file")
    (here / "mine.twmodel").write_text("mine")
    for name in ("m.bin", "plain/m.twmodel", "mine.twmodel"):
        done = CliRunner().invoke(build_app(), ["learn", "train", "gemm", "--data", seen, "--output", str(here / name)])
        assert done.exit_code in (1, 2), done.output
        assert "remedy: " in done.stderr


def test_what_a_model_has_seen_and_where_it_is_silent_is_said(here: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    seen, model = store(here / "seen.db", "random:11:36"), here / "m.twmodel"
    data("train", "gemm", "--data", seen, "--trees", "2", "--output", str(model))
    table = here / "both.csv"
    export.write(table, [*measured("random:11:36", 9), *measured("random:12:24")])
    assert data("evaluate", "gemm", str(model), "--data", str(table))["seen_in_training"] == 9
    assert "it has seen 9 of the 33 problems in training" in shell(
        "evaluate", "gemm", str(model), "--data", str(table)).stderr  # fmt: skip
    assert data("compare", "gemm", str(model), "--data", str(table))["known"][str(model)]["seen_in_training"] == 9
    compared = " ".join(shell("compare", "gemm", str(model), "--data", str(table)).stderr.split())
    assert "it has seen 9 of the 33 problems in training" in compared
    elsewhere = SHIPPED / "gemm-h200.twmodel"
    done = shell("compare", "gemm", str(model), str(elsewhere), "--data", str(table))
    assert f"{elsewhere}: 33 problems: dispatch would go by the estimate: it was trained for sm_90a" in done.stderr


def test_a_model_of_a_device_that_is_not_here_says_what_it_would_there() -> None:
    words = ["gemm", "--m", "512", "--n", "512", "--k", "512", "--datatype", "bf16", "--layout", "rcr"]
    if machine("sm_90a"):
        pytest.skip("such a device is here")
    words += ["--model", str(SHIPPED / "gemm-h200.twmodel")]
    found = [one["predicted"] for one in data("predict", *words)["kernels"]]
    asked = [one for one in found if one is not None]
    assert len(asked) > 5
    assert asked == sorted(asked)
    assert found == [*asked, *[None] * (len(found) - len(asked))], "those it was not asked about come last"
    done = shell("predict", *words)
    assert "inf" not in done.stdout.split()
    assert "-: not predicted" in done.stderr


def test_a_model_of_another_cpu_than_this_one_says_what_it_would_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer CPU runs the model's target too, with other flags: it is asked all the same, and that is said."""
    model = model_of(Path("gemm-zen4-avx512"))
    words = ("predict", "gemm", "--m", "96", "--n", "80", "--k", "64", "--model", "gemm-zen4-avx512")
    own = dict(model.card.devices[0])
    answers = []
    for device in (own, {**own, "flags": "0123456789abcdef"}):
        monkeypatch.setattr(records, "machine", lambda _target="", device=device: device)
        done = shell(*words, "--json")
        answers.append((json.loads(done.stdout), "dispatch on this device does not ask the model" in done.stderr))
    assert answers[0][0] == answers[1][0]
    assert [noted for _, noted in answers] == [False, True]


def test_a_model_that_ships_is_named_as_its_file_is_called(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    export.write(here / "t.csv", measured("random:12:24"))
    words = ("gemm-zen4-avx2", str(SHIPPED / "gemm-zen4-avx2.twmodel"))
    by_name, by_file = (data("evaluate", "gemm", word, "--data", "t.csv") for word in words)
    assert by_name == by_file
    done = CliRunner().invoke(build_app(), ["learn", "evaluate", "gemm", "gemm-zen5", "--data", "t.csv"])
    assert done.exit_code in (1, 2)
    assert "[model-file]" in done.stderr
    assert "gemm-zen4-avx2" in done.stderr, "those that ship are named"
    (here / "gemm-zen4-avx2").write_text("a file comes first")
    done = CliRunner().invoke(build_app(), ["learn", "evaluate", "gemm", "gemm-zen4-avx2", "--data", "t.csv"])
    assert "is no model that can be used" in done.stderr


def test_a_training_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    store = stored.Results(tmp_path / "few.db")
    store.put(measured("validation", 3))
    store.close()
    done = shell(
        "train", "gemm", "--data", str(store.path), "--output", str(tmp_path / "a" / "b" / "m.twmodel"), status=1
    )
    assert "[too-little-data]" in done.stderr
    assert not (tmp_path / "a").exists()
