"""benchmarks/models_h200.py as far as it goes without a GPU: tiny models on the CPU.  Nothing here looks at a time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def rehearsed(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "models_h200.py"), "--device", "cpu", "--tiny", "--rounds", "2"]
    everything = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, timeout=300, env=everything
    )


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, made)
    found.loader.exec_module(made)
    return made


def test_models_are_checked_timed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every contestant is right by float64 before it is timed: what fails, the exit code tells."""
    place = tmp_path / "models.json"
    done = rehearsed("--only", "Tiny decode,training", "--output", str(place), "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(place.read_text(encoding="utf-8"))
    decoder, training = data["rows"]
    assert (data["seed"], decoder["kind"], decoder["layers"], training["kind"]) == (23, "decode", 2, "training")
    assert not decoder["failed"]
    assert not training["failed"]
    assert set(decoder["seconds"]) == set(decoder["errors"])
    assert {"torch eager", "ours eager", "ours drop-in", "torch graph", "ours graph", "ours compiled + graph",
            "torch max-autotune + graph"} <= set(decoder["seconds"])  # fmt: skip
    assert {"eager", "graph", "compiled", "compiled + graph"} <= set(decoder["ratio"])
    assert set(training["ratio"]) == {"eager", "graph"}
    assert set(data["summary"]) == {"all", "decode", "training"}
    assert "goals:" in done.stdout.splitlines()[-1]
    page = "\n".join(script("models_table", monkeypatch).gpu_section(data))
    assert decoder["model"] in page
    assert "geometric mean, all" in page


def test_a_budget_leaves_models_out(tmp_path: Path) -> None:
    place = tmp_path / "models.json"
    done = rehearsed("--only", "U-Net", "--budget", "0", "--output", str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(place.read_text(encoding="utf-8"))
    assert (data["rows"], data["left_out"]) == ([], ["U-Net block"])
    assert "left out for time: U-Net block" in done.stdout
    assert rehearsed("--only", "lstm").returncode != 0


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = script("models_h200", monkeypatch)
    right = {"rms": 1e-3, "largest": 4e-3}
    assert bench.why_wrong({"rms": 1.9e-3, "largest": 1e-2}, right, 0.0) == ""
    assert "rms" in bench.why_wrong({"rms": 2.1e-3, "largest": 4e-3}, right, 0.0)
    assert "largest" in bench.why_wrong({"rms": 1e-3, "largest": 1.3e-2}, right, 0.0)
    assert bench.why_wrong({"rms": float("nan"), "largest": 0.0}, right, 0.0)


def test_default_models_are_those_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most telling first; contexts differ by the seed."""
    cases = script("_models_h200_cases", monkeypatch)
    names = [one.case.name for one in cases.entries(23, 2)]
    assert len(names) == len(set(names)) == 2 * (9 + 3) + 5
    for batch in (1, 16, 64):
        for context in (1024, 4096, 32768):
            assert f"Qwen-32B decode batch {batch} context {context}" in names
    assert sum(one.autotuned for one in cases.entries(23, 2)) == 1
    about = [[one.case.about for one in cases.entries(seed, 2)] for seed in (23, 23, 24)]
    assert about[0] == about[1] != about[2]
