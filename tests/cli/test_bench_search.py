"""`tilewright bench --search`: a few kernels of a pool under a budget, on this machine's CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import settings
from tilewright.cli.main import build_app
from tilewright.dispatch import records as measured
from tilewright.dispatch.results import OK, Results

QUICK = ("--target", "generic", "--threads", "1", "--patience", "0", "-j", "1")
FEW = ("--pool", "tests", "--filter", "c.pipeline in ['direct', 'loops']")


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> measured.Records:
    """Records of their own, kernels from the shared store."""
    made = measured.Records(tmp_path / "records")
    monkeypatch.setitem(measured._known, settings.current().cache_dir, made)
    return made


def bench(*words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(build_app(), ["bench", "gemm", *QUICK, *words])
    assert done.exit_code == status, done.output
    return done


def searched(store: Path, *words: str) -> dict[str, Any]:
    sizes = ("--m", "8", "--n", "8", "--k", "8")
    (found,) = json.loads(bench(*sizes, *FEW, "--store", str(store), "--budget", "10m", "--json", *words).stdout)
    assert isinstance(found, dict)
    return found


def test_a_search_that_ends_has_measured_all_and_the_same_again_measures_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    first = searched(store, "--search", "random", "--seed", "7", "--rounds", "1")
    found = first["search"]
    count = found["kernels"]
    assert count > 1
    assert (found["strategy"], found["seed"], found["tried"], found["finished"]) == ("random", 7, count, True)
    assert found["regret"]["store"] == 0
    assert (found["regret"]["unseen"], found["regret"]["better"]) == (0, 0)
    assert found["curve"][-1][1] == min(one["seconds"] for one in first["timings"])
    rows = list(Results(store).all())
    assert len(rows) == count
    assert {row.status for row in rows} == {OK}
    assert all(row.error is not None for row in rows), "checked before timed, as in a sweep"
    again = searched(store, "--search", "evolve", "--rounds", "1")["search"]
    assert (again["tried"], again["known"], again["finished"]) == (0, count, True)


def test_halving_ends_with_whole_measurements_of_what_it_kept(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    found = searched(store, "--search", "halving", "--rounds", "8")
    rounds = {row.kernel.digest: row.method["rounds"] for row in Results(store).all()}
    assert len(rounds) == found["search"]["kernels"]
    assert set(rounds.values()) <= {4, 8}
    assert rounds[found["choice"]] == 8
    again = searched(store, "--search", "halving", "--rounds", "8")
    assert again["search"]["known"] == len(rounds)


def test_a_set_is_searched_and_told_with_its_regret(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps([{"m": 8, "n": 8, "k": 8}, {"m": 9, "n": 8, "k": 8}]))
    done = bench("--problems", str(file), *FEW, "--search", "model", "--budget", "10m", "--rounds", "1", "--save")
    assert "behind store" in done.stdout
    assert "searched by model, seed 0" in done.stderr
    assert "remembered" in done.stderr


SIZES = ("--m", "8", "--n", "8", "--k", "8")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--search", "evolv"), "search-name"),
        (("--search", "random", "--budget", "soon"), "search-budget"),
        (("--search", "random", "--budget", "-1"), "search-budget"),
        (("--budget", "10s"), "option-without-search"),
        (("--seed", "3"), "option-without-search"),
    ],
)
def test_what_cannot_be_meant_is_one_error(words: tuple[str, ...], rule: str) -> None:
    assert f"[{rule}]" in bench(*SIZES, *words, status=1).stderr
