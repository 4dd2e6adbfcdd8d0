"""The tests' verdict is the same whatever this machine is and its user has installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import amd_toolchain
from tests.backends.cpu.gemm.catalog import of_all_tests
from tilewright import settings
from tilewright.arch import all_archs
from tilewright.toolchains import installed

ROOT = Path(__file__).parents[1]


def test_no_toolchain_is_met() -> None:
    now = settings.from_environment()
    assert (now.rocm_path, now.hipcc, now.ck_tile) == ("", "", "")
    assert now == settings.current()
    assert installed.all_installed() == []
    assert now.cache_dir.name == "tilewright-store"


@pytest.mark.amd
def test_amd_tests_meet_the_one_they_were_given() -> None:
    given = os.environ[amd_toolchain.GIVEN]
    assert settings.current().rocm_path == settings.from_environment().rocm_path == given
    assert installed.default_prefix("rocm") != Path(given)


def pytest_in(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    whole = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=whole, capture_output=True, text=True, check=False)


def test_a_toolchain_in_the_cache_changes_nothing(tmp_path: Path) -> None:
    rocm = tmp_path / "toolchains" / "rocm"
    (rocm / "bin").mkdir(parents=True)
    (rocm / "bin" / "hipcc").write_text("#!/bin/sh\nexit 1\n")
    (rocm / "manifest.json").write_text('{"format": 1, "files_sha256": "", "name": "rocm", "version": "7"}')
    assert installed.read(rocm) is not None, "it would be met"
    told = pytest_in(
        {"TILEWRIGHT_CACHE_DIR": str(tmp_path), "TILEWRIGHT_HIPCC": str(rocm / "bin" / "hipcc")}
        | {amd_toolchain.GIVEN: str(rocm)},
        *(f"{__file__}", "-k", "meet or is_met"),
    )
    assert "1 passed, 1 skipped" in told.stdout, told.stdout + told.stderr
    assert "is no usable HIP compiler" in told.stdout  # why the other was skipped is said without being asked


@pytest.mark.proof
def test_without_a_compiler_tests_are_skipped_and_say_so(tmp_path: Path) -> None:
    """Those that ask for kernels, those that come to one by a call, and those that start a process which does."""
    told = pytest_in(
        {"TILEWRIGHT_CXX": str(tmp_path / "none"), "TILEWRIGHT_CACHE_DIR": str(tmp_path)},
        *("tests/backends/cpu/gemm/test_check.py", "tests/api/test_api.py", "tests/examples", "-k"),
        "test_every_sentence or test_the_default_output_type or (wrong_kernel and 01_basic)",
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "tests are skipped: needs a C++ compiler: " in told.stdout
    assert "failed" not in told.stdout


LIST = "from tests.backends.cpu.gemm.catalog import of_all_tests; print(*(spec.digest for spec in of_all_tests()))"


def test_the_same_kernels_are_compiled_whatever_the_cpu() -> None:
    environment = {**os.environ, "TILEWRIGHT_HOST_LEVEL": "generic"}
    command = [sys.executable, "-c", LIST]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [spec.digest for spec in of_all_tests()]
    assert {spec.arch for spec in of_all_tests()} == {one.name for one in all_archs().values() if one.family == "cpu"}
