"""Every command, in processes of their own: the ops are only on their path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.house.conftest import Shell

Data = Callable[..., Any]

PROBLEMS = {
    "rowscale": ("--rows", "9", "--columns", "70", "--datatype", "bf16", "--activation", "Silu"),
    "regionstats": (
        "--n", "3", "--spatial", "9x7x12", "--channels", "21", "--dilation", "2x1x1", "--weight", "--datatype", "fp16",
    ),
}  # fmt: skip
AXES = {"rowscale": ("--datatype", "bf16,fp32"), "regionstats": ("--datatype", "fp16", "--fused", "weight")}
NAMES = {"rowscale": ("rowscale_",), "regionstats": ("regionstats_partial_", "regionstats_combine_")}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store and records of this test alone, for processes it starts."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.mark.parametrize("op", PROBLEMS)
def test_specs(op: str, shell: Shell, data: Data) -> None:
    found = data("specs", op, "--pool", "full", *AXES[op])
    listed = json.dumps(found)
    for name in NAMES[op]:
        assert name in listed
    assert "why-not" not in listed
    refused = shell("specs", op, "--pool", "full", "--why-not").stdout
    assert ("vector-unroll" if op == "rowscale" else "registers") in refused
    shell("specs", op, "--pool", "ful", status=1)


@pytest.mark.parametrize("op", PROBLEMS)
def test_help_is_made_of_the_op_s_own_options(op: str, shell: Shell) -> None:
    for command in ("run", "explain", "bench"):
        said = shell(command, op, "--help", COLUMNS="200").stdout
        for word in PROBLEMS[op]:
            assert not word.startswith("--") or word in said
    listed = shell("specs", "--help", COLUMNS="200").stdout + shell("run", "--help", COLUMNS="200").stdout
    assert op in listed


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("op", PROBLEMS)
def test_generate_wrap_and_a_build_of_one_s_own(op: str, shell: Shell, tmp_path: Path) -> None:
    shell("generate", op, "--pool", "default", *AXES[op], "--output-dir", "kernels")
    manifest = json.loads((tmp_path / "kernels" / "manifest.json").read_text())
    assert len(manifest["kernels"]) >= 3
    again = shell("generate", op, "--pool", "default", *AXES[op], "--output-dir", "kernels")
    assert "0 written" in again.stdout + again.stderr
    shell("wrap", "--kernel-dir", "kernels", "--output-dir", "lib", "--generate-ninja")
    ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    assert ninja
    done = subprocess.run([ninja, "-C", "lib"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    library = next((tmp_path / "lib").rglob("*.so"))

    from tilewright import Registry

    registry = Registry()
    registry.add_library(library)
    assert {one.name for one in registry.specs()} == {one["name"] for one in manifest["kernels"]}
    assert {one.library_path for one in registry.kernels()} == {library}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("op", PROBLEMS)
def test_build_run_explain_bench_inspect_cache(op: str, shell: Shell, data: Data, store: Path) -> None:
    shell("build", op, "--pool", "default", *AXES[op])
    listed = shell("cache", "ls", COLUMNS="200").stdout
    for name in NAMES[op]:
        assert name in listed

    for threads in ("1", "2"):
        report = data("run", op, *PROBLEMS[op], "--verify", "--threads", threads)
        assert report["ok"] is True
        assert report["error_over_bound"] <= 1

    said = shell("explain", op, *PROBLEMS[op], COLUMNS="200").stdout
    assert "heuristic" in said
    for name in NAMES[op]:
        assert name in said

    shell("bench", op, *PROBLEMS[op], "--save", "--threads", "1")
    said = shell("explain", op, *PROBLEMS[op], "--threads", "1", COLUMNS="200").stdout
    assert said.count("measured") >= len(NAMES[op])
    report = data("run", op, *PROBLEMS[op], "--verify", "--threads", "1")
    assert report["ok"] is True
    assert "measured" in json.dumps(report)

    for name in NAMES[op]:
        kernel = next(word for word in listed.split() if word.startswith(name))
        assert "is in the store" in shell("cache", "why", kernel).stdout
        assert kernel in shell("inspect", kernel, COLUMNS="200").stdout


def test_an_op_without_an_engine_part_is_swept_from_a_file(
    shell: Shell, data: Data, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text("rows,columns\n8,32\n")
    words = ("bench", "rowscale", "--problems", "p.csv", "--threads", "1", "--rounds", "1", "--patience", "0")
    shell(*words, "--output", "o.csv", "--datatype", "fp32")
    head, *rows = (tmp_path / "o.csv").read_text().splitlines()
    assert head.startswith("kernel,problem_idx,rows,columns,")
    assert rows
    shell("problems", "show", "rowscale", "random:1:2", status=1)


def test_a_stage_is_run_and_measured_apart(shell: Shell, data: Data, store: Path) -> None:
    for stage in ("partial", "combine"):
        report = data("run", "regionstats", *PROBLEMS["regionstats"], "--stage", stage, "--verify")
        assert report["ok"] is True
        shell("bench", "regionstats", *PROBLEMS["regionstats"], "--stage", stage, "--save", "--threads", "1")
        said = shell("explain", "regionstats", *PROBLEMS["regionstats"], "--stage", stage, "--threads", "1").stdout
        assert "measured" in said
    whole = shell("explain", "regionstats", *PROBLEMS["regionstats"], "--threads", "1").stdout
    assert whole.count("measured") >= 2, "what was measured of the stages counts for the whole"


@pytest.mark.parametrize("op", PROBLEMS)
def test_what_is_wrong_is_one_clear_error(op: str, shell: Shell) -> None:
    done = shell("run", op, *PROBLEMS[op], "--datatype", "fp31", status=1)
    assert "remedy" in done.stderr
    assert "Traceback" not in done.stderr
    done = shell("run", op, status=1)
    assert "option-missing" in done.stderr
    assert PROBLEMS[op][0] in done.stderr
