"""Members of zip files, read as `zipfile` reads them; what is odd or damaged is for it to tell."""

from __future__ import annotations

import io
import zipfile

import pytest

from tilewright.dispatch import model_archive, model_files
from tilewright.dispatch.model_archive import Archive

TEXT = b"a text that can be made smaller " * 50


def zipped(compression: int = zipfile.ZIP_DEFLATED, comment: bytes = b"", name: str = "card.json") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), TEXT, compress_type=compression)
        archive.writestr(zipfile.ZipInfo("empty", (1980, 1, 1, 0, 0, 0)), b"")
        archive.comment = comment
    return out.getvalue()


def test_shipped_models_are_read_without_zipfile(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: model_files._shipped_bytes(f"{name}{model_files.ENDING}") for name in model_files.shipped_names()}
    assert files
    expected = {}
    for name, data in files.items():
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            expected[name] = {member: archive.read(member) for member in archive.namelist()}
    monkeypatch.setattr(model_archive, "_zip_file", lambda data: pytest.fail("zipfile was asked"))
    for name, data in files.items():
        ours = Archive(data)
        assert {member: ours.read(member) for member in ours.sizes} == expected[name]
        assert ours.sizes == {member: len(content) for member, content in expected[name].items()}


@pytest.mark.parametrize("data", [zipped(), zipped(zipfile.ZIP_STORED), zipped(zipfile.ZIP_LZMA), zipped(comment=b"x")])
def test_other_zip_files(data: bytes) -> None:
    archive = Archive(data)
    assert archive.sizes == {"card.json": len(TEXT), "empty": 0}
    assert archive.read("card.json") == TEXT
    assert archive.read("empty") == b""
    with pytest.raises(KeyError, match="other"):
        archive.read("other")


def test_names_beyond_ascii() -> None:
    assert Archive(zipped(name="k\u00e4rte")).read("k\u00e4rte") == TEXT


def test_every_damaged_byte_is_told_or_does_not_matter() -> None:
    data = zipped()
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            content = Archive(damaged).read("card.json")
        except model_files._DAMAGE:
            continue
        assert content == TEXT, at


@pytest.mark.parametrize("length", [0, 3, 21, 22, 60, 200])
def test_what_is_cut_short(length: int) -> None:
    with pytest.raises(ValueError, match="not a zip file"):
        Archive(zipped()[:length])
