"""Try the suite on machines that lack something: `make test-machines`, with LONG=1 all quick tests on each.

Each is this machine in a clean environment: a PATH without some programs, a home of its own, another user.  What this
machine cannot play is said and skipped.  Nothing but what fails on a machine it did play fails the run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.machines.machines import FIRST_CALL, MACHINES, Machine
from tests.machines.places import (
    CannotBeHadError,
    hiding,
    home,
    installed_for,
    ordinary_user,
    programs_without,
    python_for,
    run,
)

QUICK = ("tests", "-m", "not proof and not amd")  # what `make test` runs


class Played:
    """One machine, set up in a folder."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, folder = machine, folder / machine.name.replace(" ", "-")
        folder.mkdir()
        folder.chmod(0o755)
        self._begins = hiding(machine.hidden_folders)
        self._user = ordinary_user() if machine.ordinary else None
        self.python, more = python_for(folder, self._user)
        paths = [installed_for(folder / "packages", machine.packages)] if machine.packages else []
        paths += [more.pop("PYTHONPATH")] if "PYTHONPATH" in more else []
        self._cache = home(folder / "cache", self._user, writable=True)
        self._environment = {
            "PATH": programs_without(folder / "bin", machine.hidden) if machine.hidden else os.environ["PATH"],
            "HOME": str(home(folder / "home", self._user, machine.writable_home)),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._cache / "hypothesis"),
            "TMPDIR": str(home(folder / "tmp", self._user, writable=True)),
            **more,
        }
        if paths:
            self._environment["PYTHONPATH"] = os.pathsep.join(paths)

    def says(self, code: str) -> str:
        """The last line that Python prints there, for a user who has set nothing."""
        done = run([*self._begins, self.python, "-c", code], self._environment, self._user)
        if done.returncode:
            raise RuntimeError(f"Python ended with {done.returncode}: {done.stdout.strip()}")
        return (done.stdout.strip().splitlines() or [""])[-1]

    def why_not(self) -> str:
        return self.says(self._machine.probe)

    def first_call(self) -> str:
        """What is wrong with a user's first call; empty where it is right, or says what is missing."""
        said, should = self.says(FIRST_CALL), self._machine.first_call
        return "" if said == should else f"a first call said {said!r}, not {should!r}"

    def tests(self, chosen: tuple[str, ...]) -> tuple[bool, str]:
        """Whether the tests pass there, and what they printed."""
        environment = {**self._environment, "TILEWRIGHT_CACHE_DIR": str(self._cache)}
        workers = f"-n{min(4, os.cpu_count() or 1)}"
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", workers, "--dist=worksteal"]
        done = run([*self._begins, *command, *chosen], environment, self._user)
        return done.returncode == 0, done.stdout


def attempt(machine: Machine, folder: Path, long: bool) -> str:
    """Play a machine; what failed there, or an empty string."""
    try:
        played = Played(machine, folder)
        if why := played.why_not():
            raise CannotBeHadError(why)
        wrong = played.first_call()
    except CannotBeHadError as error:
        print(f"{machine.name}: cannot be had here: {error}", flush=True)
        return ""
    except RuntimeError as error:
        print(f"{machine.name}: {error}", flush=True)
        return str(error)
    right, printed = played.tests(QUICK if long else machine.short)
    if not right:
        print(printed)
    last = (printed.strip().splitlines() or ["pytest printed nothing"])[-1]
    print(f"{machine.name}: {wrong or 'a first call is as it should be'}; {last.strip('= ')}", flush=True)
    return wrong or ("" if right else last)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--long", action="store_true", help="all tests of `make test` on each")
    parser.add_argument("--only", default="", help="machines whose names hold this word")
    chosen = parser.parse_args(arguments)
    machines = [one for one in MACHINES if chosen.only in one.name]
    with tempfile.TemporaryDirectory(prefix="tilewright-machines-") as folder:
        Path(folder).chmod(0o755)
        failed = [one.name for one in machines if attempt(one, Path(folder), chosen.long)]
    print(f"{len(machines)} machines, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
