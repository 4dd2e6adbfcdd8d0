"""Whose threads kernels of the host run on: OpenMP's where a runtime is loaded, else ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import settings
from tilewright.errors import RequestError
from tilewright.runtime import host

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="OpenMP's threads are shared on Linux only"
)


@pytest.fixture(scope="module")
def openmp_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that uses OpenMP."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs g++ or clang++")
    made = tmp_path_factory.mktemp("openmp") / "openmp_user.so"
    words = [
        compiler,
        "-std=c++17",
        "-O1",
        "-fopenmp",
        "-shared",
        "-fPIC",
        str(HERE / "openmp_pool.cpp"),
        "-o",
        str(made),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the compiler has no OpenMP: {done.stderr.strip()[-200:]}")
    return made


def _process(words: list[str], root: Path, **environ: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=root,
        env={**settings.environment(), **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


SCENARIOS = (
    "shared", "own", "contested", "kept_off", "late", "numbers", "limited", "nested",
    "fork", "fork_first", "callers", "bits", "exits",
)  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_beside_a_user_of_openmp(name: str, openmp_user: Path, pytestconfig: pytest.Config) -> None:
    more = {"OMP_THREAD_LIMIT": "1"} if name == "limited" else {}
    _process(["-m", "tests.runtime.openmp_scenarios", name, str(openmp_user)], pytestconfig.rootpath, **more)


WITHOUT = """
from tilewright import settings
from tilewright.errors import MachineError
from tilewright.runtime import host
assert host.openmp_library() == ""
assert host.team(2)
try:
    with settings.override(thread_pool="openmp"):
        host.team(2)
except MachineError as error:
    assert error.rule == "thread-pool" and "import torch" in error.remedy, error
else:
    raise AssertionError("no error")
"""


def test_openmp_s_threads_are_asked_for_and_there_are_none(pytestconfig: pytest.Config) -> None:
    _process(["-c", WITHOUT], pytestconfig.rootpath)


def test_the_pool_is_one_of_three() -> None:
    with pytest.raises(RequestError, match="one of auto, own, openmp"), settings.override(thread_pool="tbb"):
        pass
    with settings.override(threads=2, thread_pool="own"):
        mine = host.team(2)
    with settings.override(threads=2):
        assert host.team(2) != mine


def test_kernels_called_directly_follow_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan made under one pool does not serve the other."""
    asked: list[str] = []
    team = host.team

    def noted(threads: int) -> int:
        asked.append(settings.current().thread_pool)
        return team(threads)

    a = np.ones((64, 64), np.float32)
    problem = tw.GemmProblem(m=64, n=64, k=64)
    kernel = tw.Registry().kernel(tw.Registry().select(problem).spec)
    monkeypatch.setattr(host, "team", noted)
    for pool in ("auto", "own", "auto"):
        with settings.override(threads=2, thread_pool=pool):
            kernel(a, a)
    assert list(dict.fromkeys(asked)) == ["auto", "own"]
    assert asked[-1] == "own"  # the third call found its plan
