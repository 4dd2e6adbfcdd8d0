"""Programs and libtilewright of different versions: older programs run, newer and quite other ones are refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_front_end import host
from tests.cpp.test_same_choice import line
from tilewright.arch.host import l2_bytes
from tilewright.native.judge import native_kernels

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TESTS = programs.CPP / "tests"
PROBLEM = tw.GemmProblem(m=40, n=50, k=60, layout="rcr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    registry = programs.registry_of(host(), [PROBLEM], "tiny")
    return registry.export(tmp_path_factory.mktemp("kernels")).parent


def test_an_older_program_runs_with_this_library(folder: Path, tmp_path: Path) -> None:
    """Compiled with the header of 1.1, it gets the choice that a program of today gets."""
    program = programs.program(TESTS / "abi" / "old_client.cpp", tmp_path / "old_client", f"-I{TESTS / 'abi'}")
    spec = next(iter(tw.Registry.from_json((folder / "registry.json").read_text()).specs()))
    kernels = native_kernels((spec,))
    assert kernels is not None
    signature = json.dumps(spec.to_dict()["signature"], sort_keys=True, separators=(",", ":"))
    numbers = map(str, map(int, kernels.problem(PROBLEM)))
    said = programs.call(str(program), str(folder), ",".join(kernels.problem_names), signature, *numbers).split()
    chooser = programs.program(TESTS / "choose.cpp", tmp_path / "choose")
    words = (str(chooser), str(folder), "2", str(l2_bytes()))
    digest, tier, seconds = programs.call(*words, input=line(PROBLEM) + "\n").split()
    assert said == [digest, {"heuristic": "3"}[tier], seconds, "1"]


@pytest.mark.parametrize(("version", "works"), [((1, 1), False), ((2, 0), False), ((0, 9), False), ((1, 99), True)])
def test_a_program_with_another_library(version: tuple[int, int], works: bool, folder: Path, tmp_path: Path) -> None:
    """A library that says it is of another version: an older one lacks what the program calls."""
    source = tmp_path / "version.cpp"
    number = version[0] << 16 | version[1]
    source.write_text(f'extern "C" long tw_runtime_version(void) {{ return {number}; }}\n')
    other = tmp_path / "version.so"
    programs.call(*programs.compiler(), "-shared", "-fPIC", str(source), "-o", str(other))
    chooser = programs.program(TESTS / "choose.cpp", tmp_path / "choose")
    words = [str(chooser), str(folder), "2", str(l2_bytes())]
    finished = subprocess.run(words, input=line(PROBLEM) + "\n", capture_output=True, text=True, check=False,
                              env={**os.environ, "LD_PRELOAD": str(other)})  # fmt: skip
    assert (finished.returncode == 0) is works, finished.stderr
    if not works:
        assert "runtime-version" in finished.stderr
        assert f"{version[0]}.{version[1]}" in finished.stderr
