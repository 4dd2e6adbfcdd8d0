"""What the commands share."""

from __future__ import annotations

import io
import sys

import pytest

from tilewright.cli import common
from tilewright.cli.common import numbers, progress, words
from tilewright.errors import RequestError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress("working") as advance:
        advance(1, 2)
        advance(2, 2)
    assert "working" in screen.getvalue()
    assert "2/2" in screen.getvalue()


def test_progress_is_a_few_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as advance:
        for done in range(1, 101):
            advance(done, 100)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [f"working: {done} of 100" for done in (25, 50, 75, 100)]


def test_nothing_to_do_is_no_division_by_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as advance:
        advance(0, 0)
    assert "0 of 0" in capsys.readouterr().err


def test_words_are_split_and_kept_once() -> None:
    assert words(None) == ()
    assert words(["a, b", "c", "a,"]) == ("a", "b", "c")


def test_numbers_are_whole() -> None:
    assert numbers("--num-d", ["0,2", "1"]) == (0, 2, 1)
    for wrong in ("two", "-1", "1.5"):
        with pytest.raises(RequestError) as caught:
            numbers("--num-d", [wrong])
        assert caught.value.value == wrong
        assert "--num-d" in caught.value.remedy


def test_a_long_line_goes_on_below_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    name = "n" * 40
    assert common.fit("kernel    one two three four five").split("\n") == [
        "kernel    one two three four",
        "          five",
    ]
    assert common.fit(f"kernel    {name}  (built)").split("\n") == ["kernel", f"  {name}", "          (built)"]
    assert common.fit("short").split("\n") == ["short"]
    told = common.fit("replay    tilewright explain gemm --m 33 --n 17")
    assert [line.endswith(" \\") for line in told.split("\n")] == [True] * told.count("\n") + [False]
    assert " ".join(told.replace("\\\n", " ").split()) == "replay tilewright explain gemm --m 33 --n 17"
    monkeypatch.delenv("COLUMNS")
    assert common.fit("word " * 100) == "word " * 100


def test_winners_whose_rounds_differ_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    common.say_noisy([0.01, None])
    assert not capsys.readouterr().err
    common.say_noisy([0.01, 8.55, None])
    told = " ".join(capsys.readouterr().err.split())
    assert "1 of 3 winners are uncertain" in told
    assert "855.0%" in told
