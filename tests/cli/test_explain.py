"""`explain` refuses what it would not use: a rule of another op, sink tokens without a window."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright.cli.main import build_app
from tilewright.dispatch.explain_text import duration

APP = build_app()
GEMM = ("explain", "gemm", "--m", "64", "--n", "64", "--k", "64", "--target", "generic")
SIZES = ("--batch", "1", "--heads-q", "2", "--seqlen-q", "8", "--seqlen-k", "8", "--head-dim", "32")


def run(*words: str) -> Result:
    return CliRunner().invoke(APP, list(words))


def refused(*words: str) -> str:
    done = run(*words)
    assert done.exit_code == 1, done.output
    return " ".join(done.output.split())


def test_a_rule_of_another_op_is_refused() -> None:
    error = refused(*GEMM, "--rule", "seqtune")
    assert "[selection-rule] gemm has no rule 'seqtune', attention has" in error
    assert "remedy: leave --rule out" in error


def test_a_rule_of_the_op_is_taken_and_one_misspelt_is_not() -> None:
    words = ("explain", "attention", *SIZES, "--target", "gfx942")
    assert run(*words, "--rule", "seqtune").exit_code == 0
    assert "seqtune" in refused(*words, "--rule", "seqtun")


@pytest.mark.parametrize("op", ["attention", "attention_backward"])
@pytest.mark.parametrize("also", [(), ("--causal", "top_left")])
def test_sink_tokens_without_a_window_are_refused(op: str, also: tuple[str, ...]) -> None:
    error = refused("explain", op, *SIZES, "--target", "generic", "--sink-tokens", "4", *also)
    assert "[sink]" in error
    assert "nothing reads it" in error
    assert "leave --sink-tokens out" in error


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("attention", ("--sink-tokens", "4", "--window", "4,0")),
        ("attention_backward", ("--sink-tokens", "4", "--window", "4,0")),
        ("attention", ("--total-q", "8", "--total-k", "8", "--varlen")),
        ("attention", ("--page-size", "4", "--pages", "strided")),
    ],
)
def test_a_number_that_is_read_is_taken(op: str, words: tuple[Any, ...]) -> None:
    done = run("explain", op, *SIZES, "--target", "generic", *words)
    assert done.exit_code == 0, f"{done.output}{done.exception}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.23e-6, "1.2 us"), (0.0999, "99900.0 us"), (0.5, "500.0 ms"), (84.16, "84.2 s")]
)
def test_long_times_are_in_larger_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
