"""run, explain, bench and demo from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import settings
from tilewright.cli.main import build_app


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def data(*words: str) -> dict[str, Any]:
    done = shell(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SIZES = ("--m", "33", "--n", "17", "--k", "20")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--datatype", "bf16", "--layout", "rcr", "--batch", "3", "--output", "fp32"),
        ("--datatype", "fp32", "--layout", "ccr", "--alpha", "0.5", "--beta", "2", "--threads", "1"),
        ("--epilogue", "relu", "--num-d", "1", "--layout", "rcr"),
        ("--preshuffle", "--layout", "rcr"),
        ("--batch", "2", "--broadcast-b", "--a-stride", "32"),
        ("--datatype", "int8", "--target", "cpu"),
    ],
    ids=" ".join,
)
def test_run_verifies(words: tuple[str, ...]) -> None:
    report = data("run", "gemm", *SIZES, *words, "--verify", "--repeat", "1")
    assert report["ok"] is True
    assert report["error_over_bound"] <= 1
    assert report["tier"] in ("measured", "rule", "padded", "floor")
    assert report["seconds"] > 0


def test_run_prints_what_it_did() -> None:
    done = shell("run", "gemm", *SIZES, "--verify")
    assert done.exit_code == 0, done.output
    for word in ("problem", "kernel", "tier", "GFLOP/s", "right", "of its bound"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--datatype", "fp31"), "did you mean 'fp32'"),
        (("--epilogue", "relo"), "'Relu'"),
        (("--target", "gfx1"), "arch-name"),
        (("--m", "-1"), "size-negative"),
        (("--layout", "rrc"), "layout-name"),
        (("--num-d", "1"), "epilogue-d-count"),
        (("--output", "int8"), "dtype-output"),
    ],
)
def test_a_wrong_request_is_one_clear_error(words: tuple[str, ...], text: str) -> None:
    for command in ("run", "explain"):
        done = shell(command, "gemm", *SIZES, *words)
        assert done.exit_code == 1, done.output
        assert text in done.stderr
        assert "remedy" in done.stderr


def test_explain_is_text_or_json() -> None:
    done = shell("explain", "gemm", *SIZES, "--strict")
    assert done.exit_code == 0, done.output
    assert "decided" in done.stdout
    assert "--strict" in done.stdout
    assert data("explain", "gemm", *SIZES)["problem"]["n"] == 17


def test_bench_measures_and_remembers_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dispatch import records

    # Records of their own, kernels from the shared store.
    monkeypatch.setitem(records._known, settings.current().cache_dir, records.Records(tmp_path))
    small = ("--m", "8", "--n", "8", "--k", "8", "--rounds", "1", "--target", "generic", "--threads", "1")
    record = data("bench", "gemm", *small)
    assert record["timings"]
    assert not list(tmp_path.glob("measured-*.json"))
    assert data("bench", "gemm", *small, "--save")["problem"]["m"] == 8
    explained = data("explain", "gemm", *small[:6], *small[8:])
    assert explained["chosen"]["tier"] == "measured"
    done = shell("bench", "gemm", *small)
    assert done.exit_code == 0, done.output
    assert "GFLOP/s" in done.stdout


def test_bench_takes_the_kernels_of_a_pool() -> None:
    record = data("bench", "gemm", "--m", "8", "--n", "8", "--k", "8", "--rounds", "1", "--pool", "tiny")
    assert len(record["timings"]) >= 1
    done = shell("bench", "gemm", *SIZES, "--pool", "tinny")
    assert done.exit_code == 1
    assert "pool-name" in done.stderr


def test_the_demo_declares_builds_runs_and_verifies() -> None:
    report = data("demo", "--repeat", "1")
    assert len(report["rows"]) >= 8
    assert all(row["ok"] for row in report["rows"])
    assert {"rule", "floor"} <= {row["tier"] for row in report["rows"]}
    assert all(row["numpy_ratio"] > 0 for row in report["rows"])
