"""A model with our ops as a package of AOTInductor's, on a real GPU: run by a program in C++ without Python.

Skipped where PyTorch's own package dies, without anything of ours in the process: on an H200 with PyTorch 2.11 loading
one ends in a segmentation fault (`python -m tests.gpu.package_crash --only pytorch`).  The same on a CPU is tested with
2.11 and 2.13 (tests/torch/test_packages.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.torch_here import torch

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)
pytest.importorskip("tilewright.torch", exc_type=ImportError)

import tilewright.torch
from tests.gpu.package_crash import TOLD, started
from tests.torch.programs import compiled, run

if tilewright.torch.registration() != "c++":
    pytest.skip(f"the ops are Python's here: {tilewright.torch.registration()}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
ROWS, WIDTH, HEADS, LONG = 64, 256, 4, 8192


class Model(torch.nn.Module):  # type: ignore[misc]
    """A product with an activation, one of few rows and a long k, a convolution, a cache that is appended to, and
    attention over it: kernels with workspaces, zeros in them, and arguments that are written."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in {"first": (WIDTH, WIDTH), "second": (LONG, WIDTH), "filters": (WIDTH, 3, 3, WIDTH)}.items():
            weight = torch.randn(*shape, device="cuda") / np.prod(shape[1:]) ** 0.5
            self.register_buffer(name, weight.bfloat16())

    def forward(self, x: Any) -> Any:
        hidden = tw.gemm(x.bfloat16(), self.first.T, epilogue="relu")
        wide = tw.gemm(hidden, self.second.T) / LONG**0.5
        hidden = tw.gemm(wide, self.second) + hidden
        image = tw.conv(hidden.reshape(1, 8, 8, WIDTH), self.filters, padding=1)
        rows = image.reshape(1, ROWS, HEADS, WIDTH // HEADS)
        caches = torch.zeros(2, 1, 4096, HEADS, WIDTH // HEADS, device=x.device, dtype=torch.bfloat16)
        lengths = torch.full((1,), 8, device=x.device, dtype=torch.int32)
        kept = tw.append_kv(caches[0], caches[1], rows, rows, cache_seqlens=lengths)
        seen = tw.attention(rows[:, -1:], kept.cache_k, kept.cache_v, seqlens_k=lengths + ROWS)
        return (hidden.float() + seen.reshape(1, WIDTH).float()).contiguous()


@pytest.fixture(scope="module")
def _loader_lives(tmp_path_factory: pytest.TempPathFactory) -> None:
    """PyTorch builds and loads a package of its own, in processes of their own."""
    place = tmp_path_factory.mktemp("plain") / "model.pt2"
    for step in ("build", "both"):
        ended = started(step, "pytorch", "cuda", place)
        if f"{TOLD} done" not in ended.stdout:
            what = "build" if step == "build" else "load"
            pytest.skip(
                f"PyTorch {torch.__version__} does not {what} a CUDA package of its own here, with nothing of ours "
                f"imported (status {ended.returncode})"
            )


@pytest.fixture(scope="module")
def package(_loader_lives: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The package, an input, and what the model makes of it."""
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None:
        pytest.skip("AOTInductor needs a CUDA toolkit (CUDA_HOME)")
    torch.manual_seed(29)
    model, x = Model().eval(), torch.randn(ROWS, WIDTH, device="cuda")
    place = tmp_path_factory.mktemp("package") / "model.pt2"
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=str(place))
        return place, x, model(x)


def test_a_program_without_python_runs_the_package(package: tuple[Path, Any, Any], tmp_path: Path) -> None:
    place, x, expected = package
    folder, given, made = tmp_path / "folder", tmp_path / "x", tmp_path / "y"
    loaded = torch._inductor.aoti_load_package(str(place))
    with tilewright.torch.plans(folder) as written:
        first = loaded(x)
    torch.testing.assert_close(first, expected, atol=0.05, rtol=0.05)
    assert {"gemm", "conv"} <= {op for op, _ in written.calls}
    assert any(op.startswith("append_kv") for op, _ in written.calls)
    program = compiled("plans", tmp_path)
    given.write_bytes(x.cpu().numpy().tobytes())
    ran = run(program, place, folder, given, made, WIDTH, "cuda")
    assert not ran.returncode, ran.stderr[-2000:]
    result = np.frombuffer(made.read_bytes(), np.float32).reshape(expected.shape)
    assert np.array_equal(result, first.cpu().numpy())
    whole = (folder / "plans.bin").read_bytes()
    at = 24 + int.from_bytes(whole[16:24], "little")  # behind the magic, the version and the CPU's flags
    (folder / "plans.bin").write_bytes(whole[:at] + (80).to_bytes(8, "little") + whole[at + 8 :])
    ran = run(program, place, folder, given, made, WIDTH, "cuda")
    assert "are for a GPU of architecture 80" in ran.stderr
    assert ran.returncode == 2, os.linesep.join((ran.stdout, ran.stderr))
