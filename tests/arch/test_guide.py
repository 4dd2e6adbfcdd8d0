"""docs/adding-an-arch.md, followed word for word: its files written, its commands typed, its output compared."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding-an-arch.md"
_FILE = re.compile(r"^`(\w+\.json)`:\n\n```json\n(.*?)^```$", re.M | re.S)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def files() -> dict[str, str]:
    return dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))


def steps() -> list[tuple[str, list[str]]]:
    """Each command, and the lines that the page shows of its output."""
    found: list[tuple[str, list[str]]] = []
    for block in _CONSOLE.findall(PAGE.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line != "...":
                found[-1][1].append(line)
    return found


def test_the_page_adds_an_arch_of_each_kind() -> None:
    archs = [entry for text in files().values() for entry in json.loads(text)["archs"].values()]
    assert {entry["backend"] for entry in archs} == {"cuda", "hip", "cpu"}
    assert len(steps()) > 8
    assert sum(len(lines) for _, lines in steps()) >= 3


@pytest.mark.parametrize(
    ("command", "shown"), steps(), ids=[command.partition("tilewright ")[2] for command, _ in steps()]
)
def test_a_step_of_the_page(command: str, shown: list[str], tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    variable, program, *words = shlex.split(command)
    name, _, value = variable.partition("=")
    assert (name, program) == ("TILEWRIGHT_ARCH_FILES", "tilewright")
    environment = settings.environment() | {name: value}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in shown:
        assert line in done.stdout.splitlines()
