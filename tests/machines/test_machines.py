"""The parts of which odd machines are made; `make test-machines` plays them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.machines import __main__ as play
from tests.machines.machines import CXX, MACHINES, NVDISASM, Machine
from tests.machines.places import REPOSITORY, programs_without, python_for


def program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
    (folder / name).chmod(0o755)


def test_a_path_without_some_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("c++", "g++-12", "x86_64-linux-gnu-g++", "cc", "nvcc", "nvdisasm", "tool"):
        program(tmp_path / "first", name, "first")
    program(tmp_path / "second", "tool", "second")
    (tmp_path / "first" / "notes.txt").write_text("no program")
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}:{tmp_path / 'none'}")
    found = Path(programs_without(tmp_path / "bin", f"{CXX}|{NVDISASM}"))
    assert sorted(one.name for one in found.iterdir()) == ["nvcc", "tool"]
    monkeypatch.undo()
    assert subprocess.check_output([found / "tool"], text=True) == "first\n"
    assert subprocess.check_output([found / "nvcc"], text=True) == "first\n"
    assert not (found / "nvcc").is_symlink(), "what lies beside the real one would be found"


def test_the_tests_a_machine_is_tried_with_are_there() -> None:
    assert len({one.name for one in MACHINES}) == len(MACHINES)
    for machine in MACHINES:
        for path in machine.short:
            assert (REPOSITORY / path).exists(), f"{machine.name}: {path}"


def test_our_own_python_serves_ourselves(tmp_path: Path) -> None:
    executable, more = python_for(tmp_path, None)
    assert os.access(executable, os.X_OK)
    assert more == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("machine", "said", "printed"),
    [
        (Machine("odd", "print('it has everything')", ()), "", "odd: cannot be had here: it has everything"),
        (
            Machine("odd", "raise SystemExit('broken probe')", ()),
            "broken probe",
            "odd: Python ended with 1: broken probe",
        ),
        (Machine("odd", "print('')", ("no/such/test.py",)), "no tests ran", "no tests ran"),
    ],
)
def test_what_is_said_of_a_machine(
    machine: Machine, said: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(play, "FIRST_CALL", "print('right')")
    failed = play.attempt(machine, tmp_path, long=False)
    assert said in failed
    assert bool(said) == bool(failed)
    assert printed in capsys.readouterr().out


def test_a_first_call_that_says_something_else_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "FIRST_CALL", "import os; print(sorted(os.environ), os.environ['HOME'])")
    monkeypatch.setenv("TILEWRIGHT_THREADS", "3")
    wrong = play.Played(Machine("odd", "", ()), tmp_path).first_call()
    assert "not 'right'" in wrong
    assert "TILEWRIGHT" not in wrong, "nothing of our own settings is there"
    assert str(tmp_path / "odd" / "home") in wrong
