"""A machine without a compiler gets the ops of PyTorch from a bundle: their library is in it, beside the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.bundle.build import Wish, build

pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)
pytestmark = pytest.mark.usefixtures("needs_compiler")

USED = """
import sys
import tilewright as tw
tw.use_bundle(sys.argv[1])
import torch
import tilewright.torch
from tilewright.torch import native
assert tilewright.torch.registration() == "c++", tilewright.torch.registration()
a, w = torch.randn(64, 256), torch.randn(128, 256)
with torch.inference_mode():
    for _ in range(4):
        y = torch.ops.tilewright.gemm(a, w.T)
assert torch.allclose(y, a @ w.T, atol=1e-3)
assert native.counts().alone, native.counts()
"""


def test_the_ops_are_served_by_the_library_of_a_bundle(tmp_path: Path) -> None:
    problem = tw.GemmProblem(m=64, n=128, k=256, layout="rcr")
    bundle = build(tmp_path / "model.twb", Wish(["generic"], [problem]), jobs=1).path
    bare = {
        **os.environ,
        "TILEWRIGHT_FROZEN": "1",
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "empty"),
        "TILEWRIGHT_CXX": str(tmp_path / "no_compiler"),
        "PATH": str(tmp_path),
    }
    ran = subprocess.run([sys.executable, "-c", USED, bundle], capture_output=True, text=True, check=False, env=bare)
    assert not ran.returncode, ran.stderr[-2000:]
