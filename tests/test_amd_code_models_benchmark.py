"""The benchmark that writes the table of AMD main loops: what it asks of the backend, and types without a rate."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import create_autospec

import pytest

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.backend import HipBackend
from tilewright.backends.hip.gemm import code_models

PATH = Path(__file__).parent.parent / "benchmarks" / "amd_code_models.py"
MODEL: dict[str, Any] = {
    "macs": 4096.0, "turn": 16.0, "matrix_issue": 0.5, "bound": "matrix", "waves": 2, "clocks": {"matrix": 8.0},
}  # fmt: skip


@pytest.fixture
def benchmark_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("amd_code_models", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_line_comes_from_what_the_backend_reads(
    benchmark_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    hip = create_autospec(HipBackend, instance=True)
    hip.toolchain.return_value.source.return_value.text = ""
    hip.read_code.return_value = {"waits": "kept", "code_model": MODEL}
    monkeypatch.setattr(benchmark_module, "backend", lambda name: hip)
    monkeypatch.setattr(benchmark_module.subprocess, "run", lambda *words, **options: None)
    kernel = next(benchmark_module.kernels("gfx942", "fp16", "rcr", 128))
    assert benchmark_module.line(kernel)["matrix_issue"] == 0.5
    hip.read_code.return_value = {"waits": "kept"}  # nothing multiplies
    assert benchmark_module.line(kernel) is None


def test_a_type_without_a_rate_goes_by_how_busy_matrix_units_are() -> None:
    gfx942 = arch_by_name("gfx942")
    assert code_models.entry(MODEL, gfx942, "fp32")["of_peak"] == MODEL["matrix_issue"]
    assert code_models.entry(MODEL, gfx942, "fp16")["of_peak"] != MODEL["matrix_issue"]
