"""Folders and users of which an odd machine is made: a PATH without some programs, homes, a Python for any user."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class CannotBeHadError(Exception):
    """This machine cannot play that other one; the text says why."""


def programs_without(folder: Path, hidden: str) -> str:
    """A PATH of all programs but those whose names match: links to them, beside each other.

    nvcc is a script that starts the real one, so that what lies beside that is not beside it here.
    """
    folder.mkdir(parents=True)
    pattern = re.compile(hidden)
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for program in sorted(Path(place or ".").glob("*")):
            link = folder / program.name
            if pattern.fullmatch(program.name) or link.is_symlink() or link.exists() or not os.access(program, os.X_OK):
                continue
            if program.name == "nvcc":
                link.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n', encoding="utf-8")
                link.chmod(0o755)
            else:
                link.symlink_to(program)
    return str(folder)


def ordinary_user() -> tuple[int, int] | None:
    """Somebody who is not root, where we are; None where we are somebody already."""
    if os.getuid():
        return None
    try:
        one = pwd.getpwnam("nobody")
    except KeyError:
        return (65534, 65534)
    return one.pw_uid, one.pw_gid


def python_for(folder: Path, user: tuple[int, int] | None) -> tuple[str, dict[str, str]]:
    """An interpreter with what ours has installed, and what its environment needs; a copy where ours is closed."""
    if user is None or _runs([sys.executable, "-c", ""], user, {}):
        return sys.executable, {}
    prefix, version = folder / "python", f"python{sys.version_info.major}.{sys.version_info.minor}"
    real = Path(sys.base_prefix) / "bin" / version
    if not real.exists():
        raise CannotBeHadError(f"{sys.executable} is closed to other users, and {real} cannot be copied")
    library = Path(sysconfig.get_path("stdlib"))
    for_tests = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "idlelib", "config-*", "*.a")
    shutil.copytree(library, prefix / "lib" / version, ignore=for_tests)
    for shared in (Path(sys.base_prefix) / "lib").glob("libpython*"):
        shutil.copy(shared, prefix / "lib" / shared.name)
    (prefix / "bin").mkdir()
    shutil.copy(real, prefix / "bin" / version)
    for one in (prefix, *prefix.rglob("*")):
        one.chmod(one.stat().st_mode | (0o555 if one.is_dir() else 0o444))
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    more = {
        "PYTHONHOME": str(prefix),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(REPOSITORY / "src"), *installed])),
    }
    executable = str(prefix / "bin" / version)
    if not _runs([executable, "-c", "import tilewright.cli.main, pytest"], user, more):
        raise CannotBeHadError(f"other users cannot read {REPOSITORY} or what is installed for {sys.executable}")
    return executable, more


def _runs(command: Sequence[str], user: tuple[int, int], more: dict[str, str]) -> bool:
    try:
        return run(command, {"PATH": os.environ.get("PATH", os.defpath), **more}, user).returncode == 0
    except OSError:
        return False


def run(
    command: Sequence[str], environment: dict[str, str], user: tuple[int, int] | None, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """As a user (None: as we are), in the repository, with this environment and nothing of ours."""
    who = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, cwd=REPOSITORY, env=environment, timeout=seconds, check=False, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **who,
    )  # fmt: skip


def hiding(folders: Sequence[str]) -> list[str]:
    """What a command begins with that does not see some folders: they are empty in a mount namespace of its own."""
    there = sorted({str(Path(one).resolve()) for one in folders if Path(one).is_dir()})
    if not there:
        return []
    mounts = "; ".join(f"mount -t tmpfs none '{one}' || exit 1" for one in there)
    begins = ["unshare", "--mount", "sh", "-c", f'{mounts}; exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*begins, "true"], check=False, capture_output=True).returncode:
        raise CannotBeHadError(f"{', '.join(there)} cannot be hidden")
    return begins


def home(folder: Path, user: tuple[int, int] | None, writable: bool) -> Path:
    """A home of the user, or one that nobody may write to."""
    folder.mkdir(parents=True)
    if not writable:
        folder.chmod(0o555)
    elif user is not None:
        os.chown(folder, *user)
    return folder


def installed_for(folder: Path, packages: Sequence[str]) -> str:
    """Packages for one machine alone, as an entry of PYTHONPATH."""
    here = [sys.executable, "-m", "pip"]
    outer = [shutil.which("python3") or sys.executable, "-m", "pip", "--python", sys.executable]
    for pip in (here, outer):  # an environment may have been made without pip
        done = subprocess.run(
            [*pip, "install", "-qq", "--disable-pip-version-check", "--retries=1", f"--target={folder}", *packages],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode == 0:
            return str(folder)
    said = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
    raise CannotBeHadError(f"{', '.join(packages)} cannot be installed: {said}")
