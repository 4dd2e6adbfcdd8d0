"""Files people write: whatever is wrong with one is a single error that names the place, the value and the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tilewright import files
from tilewright.errors import FileError
from tilewright.files import checked, read_json, read_json_file


@dataclass(frozen=True)
class Kernel:
    name: str
    size: int = 0
    shapes: tuple[tuple[int, int], ...] = ()


class Listing(BaseModel):
    version: Literal["one", "two"]
    kernels: list[Kernel]
    best: Kernel | None = None
    by_name: dict[str, Kernel] = {}


GOOD = '{"version": "one", "kernels": [{"name": "a", "shapes": [[1, 2]]}]}'


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(GOOD)
    found = read_json_file(path, Listing, what="a list of kernels")
    assert found.kernels == [Kernel("a", shapes=((1, 2),))]
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())  # as some editors begin a file
    assert read_json_file(str(path), Listing).version == "one"
    assert read_json(path)["kernels"] == [{"name": "a", "shapes": [[1, 2]]}]


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ('{"version": "one"}', "x.json, kernels: it is missing", "add 'kernels'"),
        ('{"version": "one", "kernels": 3}', "kernels: 3 should be a valid array", "a list of kernels"),
        ('{"version": "tow", "kernels": []}', "version: 'tow' should be 'one' or 'two'", "did you mean 'two'?"),
        ('{"version": "one", "kernel": []}', "there is no field 'kernel' (and 1 more)", "did you mean 'kernels'?"),
        (
            '{"version": "one", "kernels": [{"name": "a"}, {"name": "b", "sice": 1}]}',
            "kernels[1].sice: there is no field 'sice'",
            "did you mean 'size'? Known: name, shapes, size",
        ),
        (
            '{"version": "one", "kernels": [], "best": {"name": "b", "sice": 1}}',
            "best.sice: there is no field 'sice'",
            "did you mean 'size'?",
        ),
        (
            '{"version": "one", "kernels": [], "by_name": {"x": {"name": "b", "shape": 1}}}',
            "by_name.x.shape: there is no field 'shape'",
            "did you mean 'shapes'?",
        ),
        ('{"version": "one", "kernels": [{"name": 3}]}', "kernels[0].name: 3 should be a valid string", "fix"),
        ('{"version": "one", "kernels": [{"name": "a", "size": "3"}]}', "size: '3' should be a valid integer", ""),
        ('{"version": "one", "kernels": [{"name": "a", "size": true}]}', "size: True should be a valid integer", ""),
        ('{"version": "one", "kernels": [{"name": "a", "size": 3.0}]}', "size: 3.0 should be a valid integer", ""),
        ('{"version": "one", "kernels": [{"name": "a", "shapes": [[1]]}]}', "shapes[0][1]: it is missing", ""),
        ("[]", "the whole of it: [] should be an object", ""),
        (f'{{"version": "one", "kernels": "{"x" * 999}"}}', "xxx...", ""),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str, remedy: str) -> None:
    with pytest.raises(FileError) as caught:
        checked(text, Listing, source="x.json", what="a list of kernels")
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.remedy
    assert caught.value.rule == "file-content"
    assert len(caught.value.message) < 200


def test_unknown_fields_may_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('{"name": "a", "later": 3}')
    assert read_json_file(path, Kernel, unknown="ignore") == Kernel("a")
    with pytest.raises(FileError, match="no field 'later'"):
        read_json_file(path, Kernel)


BROKEN = {
    "empty": b"",
    "half": b'{"version": "one"',
    "words": b"version: one",
    "binary": b"\x7fELF\xff\xfe\x00",
    "latin": '{"version": "grün"}'.encode("latin-1"),
    "deep": b"[" * 100_000,
    "deep and closed": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "digits": b'{"version": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("how", [read_json, lambda path: read_json_file(path, Listing)], ids=["plain", "model"])
@pytest.mark.parametrize("name", list(BROKEN))
def test_what_is_no_json_is_one_clear_error(tmp_path: Path, name: str, how: Any) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(BROKEN[name])
    with pytest.raises(FileError) as caught:
        how(path)
    assert str(path) in caught.value.message
    assert caught.value.rule in ("file-json", "file-encoding")
    assert caught.value.remedy


@pytest.mark.parametrize("how", [read_json, lambda path: read_json_file(path, Listing)], ids=["plain", "model"])
def test_a_place_that_holds_no_file_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    (tmp_path / "file").touch()
    for place, rule in (
        ("missing", "file-missing"),
        (".", "file-folder"),
        ("file/inside", "file-folder"),
        ("a\0b", "file-unreadable"),
        ("x" * 5000, "file-unreadable"),
    ):
        with pytest.raises(FileError) as caught:
            how(tmp_path / place)
        assert caught.value.rule == rule
        assert caught.value.remedy
    monkeypatch.setattr(files, "LARGEST", 10)
    (tmp_path / "large").write_text(GOOD)
    with pytest.raises(FileError) as caught:
        how(tmp_path / "large")
    assert caught.value.rule == "file-large"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(GOOD)
    path.chmod(0)
    with pytest.raises(FileError) as caught:
        read_json(path)
    assert caught.value.rule == "file-permission"


def test_permission_is_told_apart_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(FileError) as caught:
        read_json(tmp_path / "list.json")
    assert caught.value.rule == "file-permission"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "kernels", "best", "x"]), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_a_listing_or_one_error(value: Any) -> None:
    with suppress(FileError):
        checked(json.dumps(value), Listing, source="x.json")


def test_plain_json_costs_no_pydantic(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(GOOD)
    code = "import sys, tilewright.files as f; f.read_json(sys.argv[1]); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "list.json")], check=False).returncode == 0
