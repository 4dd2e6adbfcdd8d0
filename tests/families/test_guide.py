"""docs/adding-a-kernel-family.md: its code is that of the package the tests install."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.house.test_defaults import members
from tilewright.backends.base import OpKernels
from tilewright.ops.families import FamilyRules

FAMILIES = Path(__file__).parent.parent / "plugin_families"
PAGE = Path(__file__).parent.parent.parent / "docs" / "adding-a-kernel-family.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = [(language, text) for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S)
        if language not in ("text", "console")]  # fmt: skip


@pytest.mark.parametrize(("language", "text"), CODE, ids=[text.split("\n")[0] for _, text in CODE])
def test_code_is_cut_out_of_the_file_it_names(language: str, text: str) -> None:
    head, body = text.split("\n", 1)
    place = FAMILIES / re.sub(r"^(#|//) ", "", head)
    assert place.suffix in {"py": (".py",), "toml": (".toml",), "cpp": (".h", ".jinja")}[language]
    assert body.strip()
    assert body in place.read_text(encoding="utf-8"), f"{head} does not hold this any more:\n{body}"


def test_every_member_of_a_family_is_in_a_table() -> None:
    told = set(re.findall(r"^\| `(\w+)", TEXT, re.M))
    assert (members(FamilyRules) | members(OpKernels)) - told == {
        "compile_memory"
    }  # which has a default that is enough


def test_the_pyproject_names_the_entry_points_that_the_tests_find() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((FAMILIES / "pyproject.toml").read_text(encoding="utf-8"))
    installed = configparser.ConfigParser(delimiters="=")
    installed.read(FAMILIES / "extrafamilies-1.0.dist-info" / "entry_points.txt")
    assert project["project"]["entry-points"] == {name: dict(installed[name]) for name in installed.sections()}
