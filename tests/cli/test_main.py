"""The frame of the command line: discovery, exit codes, one message an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tilewright.cli.main import EXIT_CODES, build_app
from tilewright.errors import CompileError, FilterError, InternalError, MachineError, RequestError, TilewrightError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilewright.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def failing_app(error: Exception) -> typer.Typer:
    app = build_app()

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("the message", rule="some-rule", remedy="do this"), 1),
        (FilterError("the message", rule="some-rule", remedy="do this"), 1),
        (MachineError("the message", rule="some-rule", remedy="do this"), 2),
        (CompileError("the message", rule="some-rule", remedy="do this", log_path="x"), 2),
        (InternalError("the message", rule="some-rule", remedy="do this"), 3),
    ],
)
def test_an_error_is_one_message_and_its_owners_exit_code(error: TilewrightError, code: int) -> None:
    done = CliRunner().invoke(failing_app(error), ["fail"])
    assert done.exit_code == code == EXIT_CODES[error.owner]
    assert done.stderr == "error: [some-rule] the message\n  remedy: do this\n"
    assert done.stdout == ""


def test_a_bug_is_called_a_bug() -> None:
    done = CliRunner().invoke(failing_app(ZeroDivisionError("oops")), ["fail"])
    assert done.exit_code == 3
    assert "ZeroDivisionError: oops" in done.stderr
    assert "bug in Tilewright" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_the_system_belongs_to_the_machine() -> None:
    done = CliRunner().invoke(failing_app(PermissionError(13, "Permission denied", "/some/file")), ["fail"])
    assert done.exit_code == 2
    assert "/some/file" in done.stderr


@pytest.mark.parametrize("error", [RequestError("the message"), ZeroDivisionError("oops")])
def test_debug_gives_the_traceback(error: Exception) -> None:
    done = CliRunner().invoke(failing_app(error), ["--debug", "fail"])
    assert done.exception is error


def test_every_command_module_is_found_and_has_help() -> None:
    done = CliRunner().invoke(build_app(), ["--help"])
    assert done.exit_code == 0
    for name in ("specs", "generate"):
        assert name in done.stdout
        assert CliRunner().invoke(build_app(), [name, "--help"]).exit_code == 0


def test_exit_codes_of_the_real_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    expected = {
        0: ("specs", "gemm", "--pool", "tiny", "--target", "generic"),
        1: ("specs", "gemm", "--pool", "tinny"),
        2: ("generate", "gemm", "--pool", "tiny", "-o", str(tmp_path / "file")),
    }
    for code, arguments in expected.items():
        done = run(*arguments)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert ("remedy:" in done.stderr) == (code != 0)
    assert "Traceback" in run("--debug", "specs", "gemm", "--pool", "tinny").stderr


@pytest.mark.parametrize("arguments", [("--nonsense",), ("nonsense",), ("specs",), ("specs", "gemm", "--nonsense")])
def test_a_mistyped_command_or_option_is_a_request_error(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(build_app(), list(arguments))
    assert done.exit_code == 1
    assert "Error" in done.stderr
    assert "Usage" in done.stderr


def test_a_wrong_environment_variable_is_reported_by_any_command() -> None:
    done = run("specs", "gemm", TILEWRIGHT_THREDS="2")
    assert done.returncode == 1
    assert "TILEWRIGHT_THREDS" in done.stderr
    assert "threads" in done.stderr


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.strip().count(".") >= 1


def test_output_cut_by_a_pipe_is_no_error_with_a_traceback() -> None:
    command = [sys.executable, "-m", "tilewright.cli.main", "specs", "gemm", "--pool", "full"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
