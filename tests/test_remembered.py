"""Answers about files, kept for the next process: given of the same file alone, and nothing breaks without them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tilewright import remembered, settings
from tilewright.backends import search
from tilewright.build import headers
from tilewright.errors import ToolchainError

OLD = (1, 1, 3, 4)


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def saved(folder: Path, key: str = "key", stamp: remembered.Stamp = OLD) -> remembered.Table:
    table = remembered.Table(folder, "things")
    table.put(key, stamp, ["an", "answer"])
    table.save()
    return table


def test_an_answer_is_kept_for_the_next_process_and_of_the_same_file(beside: Path) -> None:
    saved(beside)
    table = remembered.Table(beside, "things")
    assert table.get("key", OLD) == ["an", "answer"]
    assert table.get("key", (1, 2, 3, 4)) is None
    assert table.get("other", OLD) is None
    assert remembered.Table(beside, "others").get("key", OLD) is None


def test_what_another_process_wrote_meanwhile_stays(beside: Path) -> None:
    first = remembered.Table(beside, "things")
    saved(beside, "another")
    first.put("mine", OLD, [])
    first.save()
    both = remembered.Table(beside, "things")
    assert both.get("another", OLD) == ["an", "answer"]
    assert both.get("mine", OLD) == []
    assert [path.name for path in both.path.parent.iterdir()] == [both.path.name]  # no parts


def test_a_file_that_was_just_written_is_not_kept(beside: Path, tmp_path: Path) -> None:
    """It may be written once more before the clock ticks, with the stamp that it has."""
    place = tmp_path / "file"
    place.write_text("text")
    os.utime(place, (1, 1))  # whoever sets the time of a file cannot set when that was
    stamp = remembered.stamp_of(str(place))
    assert stamp is not None
    saved(beside, "young", stamp)
    assert remembered.Table(beside, "things").get("young", stamp) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 0}', '{"schema": 1, "answers": {"key": [[1,1,3,4], [5]]}}']
)
def test_a_table_that_is_none_is_as_if_there_were_none(beside: Path, text: str) -> None:
    table = saved(beside)
    table.path.write_text(text)
    assert remembered.Table(beside, "things").get("key", OLD) is None
    assert saved(beside).get("key", OLD) == ["an", "answer"]


def test_nothing_is_made_where_no_store_is_or_none_may_write(tmp_path: Path, beside: Path) -> None:
    saved(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with settings.override(frozen=True):
        saved(beside)
    assert not list(beside.iterdir())


def test_headers_are_read_once_and_again_when_they_change(
    beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "include" / "tilewright" / "abi.h"
    place.parent.mkdir(parents=True)
    place.write_text("int first;\n")
    monkeypatch.setattr(remembered, "_YOUNG_NS", -1)  # as if the file were old
    reads: list[str] = []
    includes_of = headers.includes_of

    def noted(text: str, where: str) -> tuple[str, ...]:
        reads.append(where)
        return includes_of(text, where)

    monkeypatch.setattr(headers, "includes_of", noted)
    with settings.override(cache_dir=beside):
        for expected in ("abi.h", "", "changed"):
            if expected == "changed":
                place.write_text("int second;\n")
            headers.forget()  # as a new process begins
            reads.clear()
            digests = headers.header_digests("", [tmp_path / "include"])
            assert ("tilewright/abi.h" in reads) == bool(expected)
            assert set(digests) == {"tilewright/abi.h"}
    headers.forget()


class Asked:
    """Counts how often a compiler is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tilewright.backends import asking

        self.count, outputs = 0, asking.outputs

        def counted(*arguments: object) -> object:
            self.count += 1
            return outputs(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(asking, "outputs", counted)

    def ask(self, program: str) -> list[str | ToolchainError]:
        remembered.forget()  # as a new process begins
        return search.query_together(
            (program,), [("--version",)], broken=lambda what: ToolchainError(what, rule="broken", value="")
        )


def test_gcc_is_asked_once(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("g++")
    if program is None or not search.answers_by_itself(program, []):
        pytest.skip("no gcc here")
    asked = Asked(monkeypatch)
    with settings.override(cache_dir=beside):
        assert asked.ask(program) == asked.ask(program)
        assert asked.count == 1
    remembered.forget()


def test_a_script_is_asked_by_every_process(beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it calls may be another compiler tomorrow."""
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\necho $ANSWER\n")
    script.chmod(0o755)
    asked = Asked(monkeypatch)
    monkeypatch.setattr(remembered, "_YOUNG_NS", -1)
    with settings.override(cache_dir=beside):
        for answer in ("1", "2"):
            monkeypatch.setenv("ANSWER", answer)
            assert asked.ask(str(script)) == [f"{answer}\n"]
    remembered.forget()


def test_whose_answers_may_be_kept(tmp_path: Path) -> None:
    program = tmp_path / "x86_64-linux-gnu-g++-12"
    program.write_bytes(b"\x7fELF")
    for name in ("ccache", "clang++", "python3"):
        (tmp_path / name).write_bytes(b"\x7fELF")
    (tmp_path / "c++").symlink_to(program)
    (tmp_path / "g++").symlink_to(tmp_path / "ccache")
    assert search.answers_by_itself(str(program), ["g++ (Debian) 12"])
    assert search.answers_by_itself(str(tmp_path / "c++"), ["g++ (Debian) 12"])
    assert not search.answers_by_itself(str(program), ["Apple clang version 15"])
    for name in ("g++", "clang++", "python3", "missing"):
        assert not search.answers_by_itself(str(tmp_path / name), ["12"])
