"""docs/adding-an-op.md is the story of rowscale: its code is the op's code, its commands run."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest

from tests.house.conftest import HOUSE_OPS, Shell
from tests.house.test_defaults import CONTRACTS, members

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding-an-op.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
TEXT = PAGE.read_text(encoding="utf-8")
CODE = [(language, text) for language, text in FENCE.findall(TEXT) if language != "text"]
COMMANDS = [line[2:] for language, text in FENCE.findall(TEXT) if language == "text" for line in text.splitlines()]


@pytest.mark.parametrize(("language", "text"), CODE, ids=[text.split("\n")[0] for _, text in CODE])
def test_code_is_cut_out_of_the_file_it_names(language: str, text: str) -> None:
    head, body = text.split("\n", 1)
    place = HOUSE_OPS / re.sub(r"^(#|//) ", "", head)
    assert place.suffix in {"py": (".py",), "toml": (".toml",), "c": (".h",), "cpp": (".h", ".jinja")}[language]
    assert body.strip()
    assert body in place.read_text(encoding="utf-8"), f"{head} does not hold this any more:\n{body}"


def test_every_part_of_the_package_is_told_of() -> None:
    told = {text.split("\n")[0].split(" ", 1)[1] for _, text in CODE} | set(re.findall(r"plugin_ops/(\S+?)\)", TEXT))
    parts = {one.relative_to(HOUSE_OPS).as_posix() for one in (HOUSE_OPS / "rowscale").glob("*.py")}
    assert parts - told == {"rowscale/__init__.py"}, "the story leaves out a file"


@pytest.mark.parametrize(("contract", "defaults"), CONTRACTS, ids=lambda one: one.__name__)
def test_every_member_of_a_contract_is_in_the_table(contract: type[Any], defaults: type[Any]) -> None:
    """On the side where it belongs: to be written, or inherited."""
    row = next(line for line in TEXT.splitlines() if line.startswith("| `") and f".{defaults.__name__}`" in line)
    _, _, write, inherited, _ = row.split("|")
    own = {name for name in members(contract) if hasattr(defaults, name)}
    assert set(re.findall(r"`(\w+)`", write)) == members(contract) - own
    assert set(re.findall(r"`(\w+)`(?=[:,])", inherited)) == own


def test_the_pyproject_of_the_story_makes_the_wheel_that_the_tests_find() -> None:
    """The same entry points as the installed package has, and every file that is no Python is package data."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((HOUSE_OPS / "pyproject.toml").read_text(encoding="utf-8"))
    installed = configparser.ConfigParser(delimiters="=")
    installed.read(HOUSE_OPS / "rowscale-1.0.dist-info" / "entry_points.txt")
    assert project["project"]["entry-points"] == {name: dict(installed[name]) for name in installed.sections()}
    package = HOUSE_OPS / "rowscale"
    carried = {
        one for pattern in project["tool"]["setuptools"]["package-data"]["rowscale"] for one in package.glob(pattern)
    }
    others = {one for one in package.rglob("*") if one.is_file() and one.suffix not in (".py", ".pyc")}
    assert carried == others


@pytest.mark.usefixtures("needs_compiler")
def test_the_commands_run(shell: Shell) -> None:
    assert len(COMMANDS) == 5
    for line in COMMANDS:
        program, *words = line.split()
        assert program == "tilewright"
        shell(*words)
