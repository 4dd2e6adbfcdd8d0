"""Entry points read from folders are those that Python's own reader finds."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tilewright import entry_points

TEXT = """
# ours
[tilewright.ops]
scale = scaling.ops : OP
plain=scaling
 odd = scaling.deep:a.b [extra]

[console_scripts]
tool = scaling:main
"""


def folder(place: Path, name: str, called: str = "", text: str = TEXT, ending: str = "dist-info") -> None:
    made = place / f"{name}-1.0.{ending}"
    made.mkdir(parents=True)
    (made / "entry_points.txt").write_text(text)
    if called:
        (made / ("METADATA" if ending == "dist-info" else "PKG-INFO")).write_text(f"Name: {called}\nVersion: 1.0\n")


def test_what_is_installed_here_is_what_python_finds() -> None:
    expected = {
        (point.group, point.name, point.value, one.metadata["Name"])
        for one in importlib.metadata.distributions()
        for point in one.entry_points
        if point.group.startswith("tilewright.")
    }
    found = entry_points.published("tilewright.")
    assert {(one.group, one.name, one.value, one.package) for one in found} == expected
    assert len(found) == len(expected) > 10


def test_lines_are_read_as_python_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, "a_package", "a-package")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    expected = importlib.metadata.PathDistribution(tmp_path / "a_package-1.0.dist-info").entry_points
    found = entry_points.published("tilewright.")
    assert [(one.name, one.module) for one in found] == [
        (one.name, one.module) for one in expected if one.group == "tilewright.ops"
    ]
    assert {one.package for one in found} == {"a-package"}


def test_of_a_package_that_is_there_twice_the_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "one", "a_package", "a-package", "[tilewright.ops]\nx = first:OP\n")
    folder(tmp_path / "two", "A_Package", "A_Package", "[tilewright.ops]\nx = second:OP\n", "egg-info")
    folder(tmp_path / "two", "other", "", "[tilewright.ops]\ny = third:OP\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "gone"), str(tmp_path / "one"), str(tmp_path / "two")])
    assert [(one.name, one.value, one.package) for one in entry_points.published("tilewright.")] == [
        ("x", "first:OP", "a-package"), ("y", "third:OP", "other"),
    ]  # fmt: skip


def test_packages_in_zip_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("zipped-1.0.dist-info/entry_points.txt", "[tilewright.ops]\nz = zipped:OP\n")
        archive.writestr("zipped-1.0.dist-info/METADATA", "Name: zipped\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a.zip")])
    (found,) = entry_points.published("tilewright.")
    assert (found.name, found.value, found.package) == ("z", "zipped:OP", "zipped")


@pytest.mark.parametrize(("value", "found"), [("os.path:join", "join"), ("os.path", "posixpath")])
def test_what_it_names_is_loaded(value: str, found: str) -> None:
    one = entry_points.EntryPoint("x", value, "tilewright.ops", "")
    assert one.load().__name__ in (found, "ntpath")


def test_what_names_nothing_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="no name of a module"):
        entry_points.EntryPoint("x", "a b c", "tilewright.ops", "").load()


def test_a_call_needs_no_parser_of_mail() -> None:
    """Its import took a twelfth of the first call of a process."""
    code = "import sys, tilewright.plugins as p; p.names('tilewright.ops'); print('email.message' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
