"""docs/adding-an-op.md is the story of rowscale: its code is the op's code, its commands run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.conftest import HOUSE_OPS, Shell

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding-an-op.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
TEXT = PAGE.read_text(encoding="utf-8")
CODE = [(language, text) for language, text in FENCE.findall(TEXT) if language != "text"]
COMMANDS = [line[2:] for language, text in FENCE.findall(TEXT) if language == "text" for line in text.splitlines()]


@pytest.mark.parametrize(("language", "text"), CODE, ids=[text.split("\n")[0] for _, text in CODE])
def test_code_is_cut_out_of_the_file_it_names(language: str, text: str) -> None:
    head, body = text.split("\n", 1)
    place = HOUSE_OPS / re.sub(r"^(#|//) ", "", head)
    assert place.suffix in {"py": (".py",), "ini": (".txt",), "c": (".h",), "cpp": (".h", ".jinja")}[language]
    assert body.strip()
    assert body in place.read_text(encoding="utf-8"), f"{head} does not hold this any more:\n{body}"


def test_every_part_of_the_package_is_told_of() -> None:
    told = {text.split("\n")[0].split(" ", 1)[1] for _, text in CODE} | set(re.findall(r"house_ops/(\S+?)\)", TEXT))
    parts = {one.relative_to(HOUSE_OPS).as_posix() for one in (HOUSE_OPS / "rowscale").glob("*.py")}
    assert parts - told == {"rowscale/__init__.py"}, "the story leaves out a file"


@pytest.mark.usefixtures("needs_compiler")
def test_the_commands_run(shell: Shell) -> None:
    assert len(COMMANDS) == 4
    for line in COMMANDS:
        program, *words = line.split()
        assert program == "tilewright"
        shell(*words)
