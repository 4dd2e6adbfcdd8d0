"""Two ops in packages of their own, found as a third party's wheels would be: by their metadata on the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright import plugins

HOUSE_OPS = Path(__file__).parent.parent / "plugin_ops"
OPS = ("rowscale", "regionstats")


@pytest.fixture(autouse=True)
def plugin_ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two ops are installed for the test, and gone after it."""
    monkeypatch.syspath_prepend(str(HOUSE_OPS))
    plugins.forget()
    yield
    monkeypatch.undo()
    plugins.forget()
    for name in OPS:
        vars(tilewright).pop(name, None)


Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """`tilewright WORDS` in a process of its own, with the ops on its path."""
    source = str(Path(tilewright.__file__).parent.parent)

    def run(*words: str, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HOUSE_OPS), source)), "COLUMNS": "80", **more}
        command = [sys.executable, "-m", "tilewright", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def data(shell: Shell) -> Callable[..., Any]:
    """The same with --json, read."""
    return lambda *words, **more: json.loads(shell(*words, "--json", **more).stdout)
