"""The sweeps that ship are in one form, and each is read by the script whose pattern takes it."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from tilewright.dispatch.results import Result, canonical
from tilewright.learn import packed

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
FILES = sorted((BENCHMARKS / "results" / "sweeps").iterdir())


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)


def pairs(rows: list[Result]) -> set[tuple[str, str]]:
    return {(canonical(one.problem), one.kernel.digest) for one in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda one: one.name)
def test_a_sweep_is_read_by_whoever_takes_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = loaded("train_models", monkeypatch)
    rows = packed.read(path)
    assert rows
    assert all(one.kernel.digest for one in rows), "it has kernels that this version does not know"
    taken = {name: one.target for name, one in training.MODELS.items() if path in training.files_of(one)}
    for name, target in taken.items():
        assert any(one.kernel.arch == target for one in rows), f"it teaches {name} nothing"
    kind = path.name.partition("_")[0]
    assert taken or kind in ("estimate", "judge"), "either a model learns from it, or it says whom it is for"
    assert not (taken and kind == "judge"), "who is judged by it has not seen it"
    if training.AGAIN in path.name:
        first = packed.read(path.with_name(path.name.replace(training.AGAIN, "")))
        assert pairs(rows) <= pairs(first), "it measures again what was not measured"
    if kind == "estimate":
        shapes = loaded("fit_cuda", monkeypatch).read_sweep(path)
        assert len(shapes) > 50
        assert {len(one.kernels) == len(one.seconds) for one in shapes} == {True}


def test_a_sweep_says_its_command_and_no_place_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in FILES:
        text = gzip.decompress(path.read_bytes()).decode()
        command = str(json.loads(text)["about"].get("command", ""))
        assert not [word for word in command.split() if word.startswith("/")], path.name
    words = ["/x/sweep_cpu.py", "7", "--store", "/x/y.db", "--least", "--output", "/x/z.json.gz", "--again", "/x/w"]
    machine = loaded("_machine", monkeypatch)
    monkeypatch.setattr("sys.argv", words)
    assert machine.command_line() == "python benchmarks/sweep_cpu.py 7 --least"


def test_every_sweep_of_a_model_that_ships_is_still_taken_by_its_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    training = loaded("train_models", monkeypatch)
    shipped = {one.name.removesuffix(".card.json") for one in training.SHIPPED.glob("*.card.json")}
    assert shipped <= training.MODELS.keys()
    for name in shipped:
        card = json.loads((training.SHIPPED / f"{name}.card.json").read_text(encoding="utf-8"))
        mine = [one.name for one in training.files_of(training.MODELS[name])]
        assert card["data"]["sources"] == mine, f"{name} is out of date"
