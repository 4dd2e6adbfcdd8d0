"""Several commands as one: order, what runs side by side, and which failure is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilewright.backends import steps


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


def run(*groups: list[list[str]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(steps.joined(groups), capture_output=True, text=True, check=False, timeout=60)


def waits_for(there: Path, makes: Path) -> list[str]:
    """Makes a file and ends when the other command has made its own: run one after the other, it never would."""
    return python(
        f"import pathlib, time; pathlib.Path({str(makes)!r}).touch(); end = time.time() + 30\n"
        f"while not pathlib.Path({str(there)!r}).exists():\n  assert time.time() < end; time.sleep(0.01)"
    )


def test_a_group_runs_at_once_and_the_next_after_it(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    both = python(f"import os; assert os.path.exists({str(a)!r}) and os.path.exists({str(b)!r})")
    assert run([waits_for(a, b), waits_for(b, a)], [both]).returncode == 0


def test_what_fails_ends_it_with_its_own_code_and_every_message(tmp_path: Path) -> None:
    never = tmp_path / "never"
    touch = python(f"open({str(never)!r}, 'w')")
    done = run([python("print('first fine')"), python("import sys; print('second says'); sys.exit(7)")], [touch])
    assert done.returncode == 7
    assert "first fine" in done.stdout
    assert "second says" in done.stderr
    assert not never.exists()


def test_the_first_of_two_failures_is_told() -> None:
    fail = "import sys; sys.exit({})"
    assert run([python(fail.format(3)), python(fail.format(4))]).returncode == 3


def test_a_killed_command_is_told_as_a_shell_tells_it() -> None:
    assert run([python("import os; os.kill(os.getpid(), 9)")]).returncode == 128 + 9


def test_a_command_that_is_not_there() -> None:
    done = run([python("pass"), ["no-such-compiler-anywhere"]])
    assert done.returncode == 127
    assert "no-such-compiler-anywhere: error:" in done.stderr


def test_another_command_takes_the_place_of_one_that_fails() -> None:
    """The messages of the first are nobody's then; where it works, the other never runs."""
    bad = [sys.executable, "-c", "import sys; sys.exit('first')"]
    good = [sys.executable, "-c", "print('second')"]
    done = run([[*bad, steps.ELSE, *good]], [[sys.executable, "-c", "print('after')"]])
    assert done.returncode == 0
    assert "first" not in done.stderr + done.stdout
    assert "second" in done.stderr + done.stdout
    assert "after" in done.stdout
    done = run([[*good, steps.ELSE, *bad], bad])
    assert done.returncode == 1
    assert (done.stderr + done.stdout).count("first") == 1
    done = run([[*bad, steps.ELSE, *bad]])
    assert done.returncode == 1
    assert done.stderr.count("first") == 1
