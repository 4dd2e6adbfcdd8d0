"""Files in packages: in plain folders, in zip files, and in packages of several folders."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright import packaged


@pytest.fixture(params=["folder", "zip", "namespace"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name, files = f"held_{request.param}", {"data/some.txt": b"one\r\ntwo\n"}
    if request.param != "namespace":
        files["__init__.py"] = b""
    if request.param == "zip":
        place = tmp_path / "packages.zip"
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr(f"{name}/", "")
            for path, content in files.items():
                archive.writestr(f"{name}/{path}", content)
    else:
        place = tmp_path
        for path, content in files.items():
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).write_bytes(content)
    monkeypatch.syspath_prepend(str(place))
    yield name
    sys.modules.pop(name, None)


def test_files_are_read(package: str) -> None:
    assert packaged.read_bytes(package, "data/some.txt") == b"one\r\ntwo\n"
    assert packaged.read_text(package, "data/some.txt") == "one\ntwo\n"
    assert packaged.names(package, "data") == ["some.txt"]
    assert packaged.names(package, "nothing") == []


def test_what_is_not_there(package: str) -> None:
    with pytest.raises(OSError, match="nothing"):
        packaged.read_bytes(package, "data/nothing.txt")
    with pytest.raises(ModuleNotFoundError):
        packaged.read_bytes("no_such_package_at_all", "some.txt")
