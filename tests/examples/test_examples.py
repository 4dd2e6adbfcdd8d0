"""Every example runs as it stands, checks its own result, says what it did, and is in the index."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "examples" / "python"
FILES = sorted(path.relative_to(PYTHON).as_posix() for path in PYTHON.glob("*/[0-9]*.py"))
QUICK_SEED, QUICK = 25, {"gemm": 2, "conv": 1, "attention": 4, "end_to_end": 1}
AT_LEAST = {"gemm": 10, "conv": 6, "attention": 32}
# Calls whose results an example compares; one that makes none of them has nothing that a wrong kernel could spoil.
CALLS = re.compile(r"tw\.(gemm|conv|attention|matmul|conv_backward_data|conv_backward_weight|attention_backward)\(")
# Runs an example with kernels that are 10 % off.
WRONG = """
import runpy, sys
import numpy as np
import tilewright as tw

def off(function):
    def call(*operands, **keywords):
        result = function(*operands, **keywords)
        for array in result if isinstance(result, tuple) else (result,):
            array[...] = (array.astype(np.float64) * 1.1).astype(array.dtype)
        return result
    return call

for name in ("gemm", "conv", "attention", "matmul", "conv_backward_data", "conv_backward_weight", "attention_backward"):
    setattr(tw, name, off(getattr(tw, name)))
sys.argv = [sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def drawn() -> set[str]:
    """Those that `make test` runs: a few of each folder, by a seed."""
    generator = random.Random(QUICK_SEED)
    return {
        name for folder, count in QUICK.items() for name in generator.sample(of(folder), min(count, len(of(folder))))
    }


def of(folder: str) -> list[str]:
    return [name for name in FILES if name.startswith(f"{folder}/")]


def marked(names: list[str], quick: set[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.proof) for name in names]


def test_the_features_have_an_example_each() -> None:
    for folder, count in AT_LEAST.items():
        assert len(of(folder)) >= count, folder


@pytest.mark.parametrize("name", marked(FILES, drawn()))
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(PYTHON / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 2 or "torch" in done.stdout, f"{name} says nothing:\n{done.stdout}"
    assert not done.stderr, f"{name} complains:\n{done.stderr}"
    assert not list(tmp_path.iterdir()), f"{name} leaves files in the current folder"


# Tensors would need another way to be spoiled.
SPOILED = [one for one in FILES if "torch" not in one and CALLS.search((PYTHON / one).read_text(encoding="utf-8"))]


def whole(names: list[str], quick: set[str]) -> list[object]:
    """All but a few are the rest of a proof."""
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.proof, pytest.mark.whole]) for name in names]


@pytest.mark.parametrize("name", whole(SPOILED, {"gemm/01_basic.py", "attention/01_basic.py"}))
def test_an_example_notices_a_wrong_kernel(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRONG, str(PYTHON / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1, f"{name} did not notice:\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, f"{name} crashed instead:\n{done.stderr}"


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = (PYTHON / name).read_text(encoding="utf-8")
    assert text.startswith('"""'), "an example begins with a docstring"
    assert 30 <= len(text.splitlines()) <= 80, "an example is worth reading, and short"
    assert "options(__doc__" in text, "an example takes --target"


def test_the_index_lists_every_example_once() -> None:
    listed = re.findall(r"\]\(python/(\w+/\w+\.py)\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(listed, key=lambda name: (list(QUICK).index(name.partition("/")[0]), name))
    assert sorted(listed) == FILES


def test_examples_are_checked_as_the_rest_is() -> None:
    tomllib = pytest.importorskip("tomllib")
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "examples" in data["tool"]["mypy"]["files"]
    assert "examples" not in str(data["tool"]["ruff"].get("exclude", "")), "ruff reads every file but those it is told"
