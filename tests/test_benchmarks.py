"""The benchmarks run and their results become a picture and tables.  Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright import settings

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def script(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / name), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two shapes and two types, as short as it can be."""
    place = tmp_path_factory.mktemp("results")
    options = ["--quick", "--shapes", "x64$|x251$", "--dtypes", "fp32,bf16", "--threads", "1", "--rounds", "2"]
    options += [
        "--turn",
        "0.001",
        "--store",
        str(settings.current().cache_dir),
        "--output",
        str(place / "gemm_cpu.json"),
    ]
    done = script("gemm_cpu.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def rows_of(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((place / "gemm_cpu.json").read_text(encoding="utf-8"))["rows"]
    return found


@pytest.mark.proof
def test_a_result_names_its_machine_and_tools(results: Path) -> None:
    data = json.loads((results / "gemm_cpu.json").read_text(encoding="utf-8"))
    assert data["machine"]["cpu"]
    assert data["command"].startswith("python benchmarks/gemm_cpu.py --quick")
    assert all(data["versions"][one] for one in ("python", "numpy", "blas", "compiler", "tilewright", "commit"))
    assert set(data["summary"]) == {"fp32", "bf16"}


@pytest.mark.proof
def test_every_shape_has_its_kernel_and_its_peers(results: Path) -> None:
    rows = rows_of(results)
    assert [(row["dtype"], row["shape"]) for row in rows] == [
        (dtype, shape) for dtype in ("fp32", "bf16") for shape in ("rrr 64x64x64", "rrr 257x509x251")
    ]
    for row in rows:
        assert row["kernel"].startswith(f"gemm_{row['dtype']}_rrr_")
        assert {"call", "gemm"} <= set(row["seconds"])
        assert ("numpy" in row["seconds"]) == (row["dtype"] == "fp32")
        ratio = row["over_best_peer"] if row["dtype"] == "fp32" else row["over_our_fp32"]
        assert ratio["low"] <= ratio["quartile_1"] <= ratio["quartile_3"] <= ratio["high"]


def test_a_run_of_a_part_writes_nothing_by_itself(tmp_path: Path) -> None:
    stored = BENCHMARKS / "results" / "gemm_cpu.json"
    before = stored.read_bytes() if stored.exists() else None
    done = script("gemm_cpu.py", "--shapes", "no such shape")
    assert done.returncode != 0
    assert "no shape matches" in done.stderr
    done = script("gemm_cpu.py", "--dtypes", "fp12")
    assert "'fp12' is none of" in done.stderr
    assert (stored.read_bytes() if stored.exists() else None) == before


@pytest.mark.proof
def test_the_picture(results: Path, tmp_path: Path) -> None:
    places = ["--source", str(results / "gemm_cpu.json"), "--output", str(tmp_path / "deep" / "picture.svg")]
    assert script("plot.py", "--check", *places).returncode == 1, "there is no picture yet"
    assert script("plot.py", *places).returncode == 0
    assert script("plot.py", "--check", *places).returncode == 0, "the same results give the same picture"
    root = ElementTree.parse(tmp_path / "deep" / "picture.svg").getroot()
    words = " ".join(root.itertext())
    assert all(row["shape"] in words for row in rows_of(results))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


@pytest.mark.proof
def test_the_tables(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- results: written by benchmarks/cpu_table.py, do not edit -->\nold\n"
                    "<!-- end of results -->\nafter\n", encoding="utf-8")  # fmt: skip
    places = ["--results", str(results), "--page", str(page)]
    assert script("cpu_table.py", "--check", *places).returncode == 1
    assert script("cpu_table.py", *places).returncode == 0
    assert script("cpu_table.py", "--check", *places).returncode == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("-->\nafter\n")
    assert "\nold\n" not in text
    for row in rows_of(results):
        assert f"| {row['dtype']} | {row['shape']} | {row['tier']} |" in text
    assert "### Around the kernel" not in text, "there are no results of it"


def test_a_readme_without_the_section_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("nothing\n", encoding="utf-8")
    done = script("cpu_table.py", "--page", str(page))
    assert done.returncode == 1
    assert "has no section" in done.stderr


def test_whole_models_beside_pytorch(tmp_path: Path) -> None:
    """Results are compared with float64 before anything is timed: a wrong one ends the run."""
    pytest.importorskip("torch")
    place = tmp_path / "models.json"
    done = script("models_cpu.py", "--quick", "--models", "llama decode", "--dtypes", "bf16", "--output", str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(place.read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert (row["model"], row["dtype"], data["seed"]) == ("llama decode", "bf16", 23)
    assert set(row["ratio"]) == set(data["summary"]["bf16"]) == {"replaced", "packed", "calls"}
    assert set(row["errors"]) == set(row["seconds"]) == {"torch", "replaced", "packed", "calls"}
    assert data["versions"]["torch"]
    assert script("models_cpu.py", "--models", "lstm").returncode != 0


@pytest.mark.proof
def test_first_calls_of_kernels_that_nobody_built(tmp_path: Path) -> None:
    done = script("first_calls.py", "--seed", "3", "--quick")
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"gemm", "conv", "attention"}
    assert "built before" not in done.stdout


def test_our_calls_behind_those_of_others() -> None:
    done = script("beside_others.py", "--quick", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    for op in ("gemm", "conv", "attention"):
        assert f"{op} behind NumPy: " in done.stdout
