"""Every example runs as it stands, checks its own result, and says what it did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples" / "python"

# Options that keep a program short here, and words its output must have.
EXPECTED: dict[str, tuple[list[str], list[str]]] = {
    "01_first_gemm.py": ([], ["kernel  gemm_fp32_rrr_", "tier    ", "largest error", "[shape-k]", "remedy:"]),
    "02_kernel_set_parallel_build.py": (
        [],
        [
            "declared ",
            "refused, as it should be: cpu-split-k",
            "built 3 of 3",
            "3 libraries in",
            "right: gemm_",
        ],
    ),
    "03_fused_epilogues.py": ([], ["relu(x w' + bias)", "gelu(", "in place", "one w for all"]),
    "04_preshuffled_weights.py": (
        ["--size", "160", "--repeats", "2"],
        ["packed: <PackedB 160x160 fp32", "200 rows", "both right", "refused, as it should be: packed-dtype"],
    ),
    "05_explain.py": (
        [],
        ["problem   gemm m=3", "why       ", "replay    tilewright explain gemm", "padded", "[no-kernel]"],
    ),
    "06_benchmark.py": (
        ["--size", "48", "--rounds", "2", "--kernels", "2"],
        ["before  heuristic: ", "error/bound", "after   measured: ", "measured on "],
    ),
    "07_dtypes.py": ([], ["float16 x float16", "bfloat16", "float8_e4m3fn", "int8 x int8", "torch"]),
    "08_attention.py": (
        ["--prompt", "37", "--tokens", "2"],
        ["prompt of 37: (1, 37, 8, 64), lse (1, 8, 37)", "2 tokens from 3 pages of 16: all right", "refused, as it"],
    ),
    "09_pytorch.py": (["--steps", "2"], ["torch"]),
}


def test_no_example_is_forgotten() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name: str, tmp_path: Path) -> None:
    options, words = EXPECTED[name]
    command = [sys.executable, str(EXAMPLES / name), *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    missing = [word for word in words if word not in done.stdout]
    assert not missing, f"{name} does not say {missing}:\n{done.stdout}"
    assert not done.stderr, f"{name} complains:\n{done.stderr}"
    assert not list(tmp_path.iterdir()), f"{name} leaves files in the current folder"


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_says_what_it_shows(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.startswith('"""'), "an example begins with a docstring"
    assert len(text.splitlines()) <= 80, "an example is short"
