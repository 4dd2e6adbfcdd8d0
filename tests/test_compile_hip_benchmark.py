"""The benchmark of compiling for AMD GPUs: what it compiles, and how its results get into the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

RESULT: dict[str, Any] = {
    "command": "python benchmarks/compile_hip.py",
    "date": "2026-01-02",
    "machine": {"cpu": "a CPU", "cores": 2, "system": "Linux"},
    "versions": {"commit": "abc"},
    "hipcc": "ROCm 7",
    "arch": "gfx942",
    "levers": {"naive": "everything", "lean host pass": "less"},
    "targets": {"cpu_seconds": 16.0, "generate_seconds": 3.0},
    "met": {"compile": True, "generate": False},
    "precompiled_header": {"cpu_seconds": 11.0, "mib": 82.2},
    "rows": [{"label": "compv3", "kernel": "k", "cpu_seconds": {"naive": 16.84, "lean host pass": 13.0}}],
    "parallel": {"kernels": ["a", "b"], "seconds": {"1": 20.0, "2": 10.0}, "speed_up": {"1": 1.0, "2": 2.0}},
    "generate": {"headers": 4158, "seconds": 3.2, "headers_a_second": 1299},
}


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=BENCHMARKS)


def table(page: Path, results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return python("amd_table.py", "--page", str(page), "--results", str(results), *options)


def test_results_become_tables_and_a_page_that_says_otherwise_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "amd.md"
    marks = [
        line
        for line in (BENCHMARKS.parent / "docs" / "reports" / "amd.md").read_text().splitlines()
        if "compile times" in line
    ]
    page.write_text("before\n" + "\n".join(marks) + "\nafter\n")
    assert table(page, tmp_path).returncode == 0
    assert "No results of `benchmarks/compile_hip.py`" in page.read_text()
    (tmp_path / "compile_hip.json").write_text(json.dumps(RESULT))
    assert table(page, tmp_path, "--check").returncode == 1
    assert table(page, tmp_path).returncode == 0
    text = page.read_text()
    assert "| compv3 | 16.8 | 13.0 |" in text
    assert "| 2 | 10.0 s | 2.00 |" in text
    assert "4158 headers, takes 3.20 s (goal: 3 s, missed): 1299 a second" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert table(page, tmp_path, "--check").returncode == 0


def test_the_page_says_what_the_stored_results_say() -> None:
    done = python("amd_table.py", "--check")
    assert done.returncode == 0, done.stderr


def test_what_is_compiled_is_legal_and_covers_the_kinds_of_tails() -> None:
    code = "import compile_hip as c; print(*(one.schedule.pipeline for one in c.kernels().values())); c.alike()"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["compv3", "mem", "preshuffle", "compv4"]


@pytest.mark.parametrize("lever", ["naive", "leaner includes", "shared tails"])
def test_headers_before_a_lever_show_ck_tile_to_both_passes(tmp_path: Path, lever: str) -> None:
    place = tmp_path / "headers"
    code = "import sys, pathlib, compile_hip as c; c.without(sys.argv[1], pathlib.Path(sys.argv[2]))"
    done = python("-c", code, lever, str(place))
    assert done.returncode == 0, done.stderr
    texts = {one.name: one.read_text() for one in (place / "tilewright" / "hip").glob("*.h")}
    assert not any("#if defined(__HIP_DEVICE_COMPILE__)" in one for one in texts.values())
    assert ("Naive<Config>::template run" in texts["gemm.h"]) == (lever != "shared tails")
    assert ("struct Naive" in texts["glue_mid_2025.h"]) == (lever != "shared tails")
