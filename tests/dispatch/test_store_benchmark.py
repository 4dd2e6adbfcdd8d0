"""The benchmark of the store runs, asks what it says, and tells where its numbers come from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "results_store.py"


def test_the_benchmark_of_the_store_runs(tmp_path: Path) -> None:
    words = ["--rows", "450", "--kernels", "20", "--devices", "2", "--asked", "3", "--output", str(tmp_path / "o.json")]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "o.json").read_text())
    assert (found["rows"], found["problems"], found["kernels"]) == (450, 12, 20)
    assert {"command", "date", "machine", "versions", "seed"} <= set(found)
    for name in ("best", "best_of_archs", "choice", "winner", "record", "measured"):
        assert found[name]["answers"] == 3
