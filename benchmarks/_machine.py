"""What a result file says about where it comes from: machine, system, versions, commit, date."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright.arch import best_host_arch, host_facts
from tilewright.backends.base import backend

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PLACES = ("--output", "--again", "--store", "--libraries")  # options that name files


def command_line() -> str:
    """What was asked for, but for the files the numbers went to: where they lie is nobody's business."""
    words, given = [f"python benchmarks/{Path(sys.argv[0]).name}"], sys.argv[1:]
    for before, word in zip(["", *given], given, strict=False):
        place = before in (*PLACES, "--sweep") and not word.startswith("--")
        if not place and word not in PLACES:
            words.append(word)
    return " ".join(words)


def machine() -> dict[str, Any]:
    facts = host_facts()
    return {
        "cpu": facts.model,
        "cores": facts.cores,
        "l1_bytes": facts.l1_bytes,
        "l2_bytes": facts.l2_bytes,
        "l3_bytes": facts.l3_bytes,
        "target": best_host_arch().name,
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}, {' '.join(platform.libc_ver())}",
    }


def installed(name: str) -> str:
    """The version of a package, or an empty string where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def compiler() -> str:
    return backend(best_host_arch().backend).toolchain().identity.version


def commit() -> str:
    """The commit of this checkout, marked where files differ from it."""
    git = shutil.which("git")
    if git is None:
        return "unknown: no git"
    command = [git, "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown: not a checkout"


def provenance(command: str) -> dict[str, Any]:
    """The head of every result file."""
    return {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            "numpy": installed("numpy"),
            "torch": installed("torch"),
            "compiler": compiler(),
            "tilewright": installed("tilewright"),
            "commit": commit(),
        },
    }
