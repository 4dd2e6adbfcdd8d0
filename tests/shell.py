"""`tilewright WORDS` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import tilewright

Shell = Callable[..., subprocess.CompletedProcess[str]]


def shell_in(folder: Path) -> Shell:
    """A function that runs a command in a folder and demands its exit status."""
    source = str(Path(tilewright.__file__).parent.parent)

    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": "200"}
        command = [sys.executable, "-m", "tilewright", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
