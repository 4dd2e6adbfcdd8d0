"""`tilewright prepare`: ranges as options, files of problems, what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tilewright as tw
from tilewright.cli.main import build_app
from tilewright.ops.base import plain

pytestmark = pytest.mark.usefixtures("needs_compiler")


def prepare(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["prepare", *words])


def test_ranges_lists_and_numbers() -> None:
    found = prepare("gemm", "--m", "1..40", "--n", "8..32..8", "--k", "16,32", "--dry-run", "--json")
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    assert report["problems"] == 40 * 4 * 2
    assert report["worst"] <= 0.03
    assert not report["built"]
    assert {"name", "digest", "problems", "seconds"} == set(report["kernels"][0])


def test_the_report_is_for_people() -> None:
    found = prepare("gemm", "--m", "1..8", "--n", "8", "--k", "8", "--loss", "0.1", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "serve" in found.stdout
    assert "at most 10.0%" in found.stdout
    assert "best_built" in found.stdout


def test_sizes_of_other_ops_have_ranges_too() -> None:
    words = ("--batch", "1", "--channels", "8", "--filters", "8", "--size", "7..9x7", "--window", "3", "--padding", "1")
    found = prepare("conv", *words, "--dry-run", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["problems"] == 3


def test_a_file_of_problems(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps([{"m": 8, "n": 8, "k": 8}, {"m": 16, "n": 8, "k": 8}]))
    found = prepare("gemm", "--problems", str(path), "--dry-run", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["problems"] == 2


def test_a_recording_needs_no_op(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    problems = (tw.GemmProblem(8, 8, 8), tw.ConvProblem(1, 8, 8, (7,), (3,)))
    rows = [{"op": one.op, "calls": 3, "problem": plain(one)} for one in problems]
    path.write_text(json.dumps({"recorded": 1, "problems": rows}))
    found = prepare("--problems", str(path), "--dry-run", "--json")
    assert found.exit_code == 0, found.output
    names = {one["name"].partition("_")[0] for one in json.loads(found.stdout)["kernels"]}
    assert names == {"gemm", "conv"}


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("gemm", "--m", "9..1", "--n", "8", "--k", "8"), "prepare-range"),
        (("gemm", "--m", "1-9", "--n", "8", "--k", "8"), "prepare-range"),
        (("gemm", "--m", "1..9"), "option-missing"),
        (("gemm", "--problems", "nonsense"), "problem-set"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], rule: str) -> None:
    found = prepare(*words, "--dry-run")
    assert found.exit_code == 1
    assert f"[{rule}]" in found.output
