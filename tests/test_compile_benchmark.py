"""The benchmark of compiling for NVIDIA GPUs: what it compiles, and what it writes.  Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.backends.base import backend
from tilewright.errors import ToolchainError

pytestmark = pytest.mark.tools  # a CUDA compiler

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "compile_cuda.py"
STORED = SCRIPT.parent / "results" / "compile_cuda.json"
PIPELINES = {"tma_ws", "multistage", "skinny", "loops"}


@pytest.mark.proof
def test_a_short_run_writes_a_row_of_each_pipeline(tmp_path: Path) -> None:
    try:
        backend("cuda").toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}; {error.remedy}")
    output = tmp_path / "results.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    # 1: a machine so slow that the target is missed; the result is written all the same.
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert {row["pipeline"] for row in result["rows"]} == PIPELINES
    assert result["compilers"]
    for row in result["rows"]:
        assert set(row["cpu_seconds"]) == set(result["compilers"])
    assert result["machine"]["cpu"]
    assert result["versions"]["commit"]


def test_the_stored_result_met_its_target() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert set(stored["summary"]) == PIPELINES
    assert set(stored["compilers"]) == {"nvcc", "nvrtc"}
    assert stored["met"]
    assert len(stored["rows"]) > 40
