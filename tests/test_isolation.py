"""The tests' verdict is the same whatever this machine's user has installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import amd_toolchain
from tilewright import settings
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


def test_a_toolchain_in_the_cache_changes_nothing(tmp_path: Path) -> None:
    rocm = tmp_path / "toolchains" / "rocm"
    (rocm / "bin").mkdir(parents=True)
    (rocm / "bin" / "hipcc").write_text("#!/bin/sh\nexit 1\n")
    (rocm / "manifest.json").write_text('{"format": 1, "files_sha256": "", "name": "rocm", "version": "7"}')
    assert installed.read(rocm) is not None, "it would be met"
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}", "-k", "meet or is_met"],
        cwd=ROOT,
        env={**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path), "TILEWRIGHT_HIPCC": str(rocm / "bin" / "hipcc")}
        | {amd_toolchain.GIVEN: str(rocm)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed, 1 skipped" in told.stdout, told.stdout + told.stderr
    assert "is no usable HIP compiler" in told.stdout  # why the other was skipped is said without being asked
