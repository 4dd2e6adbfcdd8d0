"""The frame of the command line: discovery, exit codes, one message an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.build.stubs import write_stub
from tilewright.cli.main import EXIT_CODES, build_app
from tilewright.errors import CompileError, FilterError, InternalError, MachineError, RequestError, TilewrightError

SIZES = ("--batch", "1", "--heads-q", "8", "--seqlen-q", "128", "--seqlen-k", "128", "--head-dim", "64")


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
    expected = {
        0: ("specs", "gemm", "--pool", "tiny", "--target", "generic"),
        1: ("specs", "gemm", "--pool", "tinny"),
        2: ("generate", "gemm", "--pool", "tiny", "-o", str(tmp_path / ("long" * 100))),
    }
    for code, arguments in expected.items():
        done = run(*arguments)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert ("remedy:" in done.stderr) == (code != 0)
    assert "Traceback" in run("--debug", "specs", "gemm", "--pool", "tinny").stderr


@pytest.mark.parametrize(
    "arguments",
    [("--nonsense",), ("nonsense",), ("wrap",), ("specs", "gemm", "--nonsense"), ("specs", "gemm", "--pool")],
)
def test_a_mistyped_command_or_option_is_a_request_error(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(build_app(), list(arguments))
    assert done.exit_code == 1
    assert done.stderr.startswith("error: [command-line] ")
    assert "\n  remedy: `" in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize(
    "arguments",
    [("run", "gemm", "--m", "four"), ("prepare", "gemm", "--loss", "nan"), ("build", "gemm", "--jobs", "-3")],
)
def test_a_value_that_an_option_does_not_take_is_named(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(build_app(), list(arguments))
    assert done.exit_code == 1
    assert done.stderr.startswith("error: [command-line] ")
    assert arguments[-2] in done.stderr
    assert arguments[-1] in done.stderr
    assert f"{' '.join(arguments[:2])} --help` lists what it takes" in done.stderr


def test_an_interruption_while_the_commands_are_imported_is_one_line() -> None:
    program = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from tilewright.cli._start import main\n"
        "main()\n"
    )
    configuration = Path(__file__).parents[2] / "pyproject.toml"
    assert 'tilewright = "tilewright.cli._start:main"' in configuration.read_text(encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("specs", "gem"), "did you mean 'gemm'"),
        (("specs", "gemm", "--datatyp", "fp16"), "--datatype"),
        (("run", "gemm", "--preshufle"), "--preshuffle"),
        (("spec", "gemm"), "specs"),
        (("cache", "lss"), "ls"),
    ],
)
def test_what_is_not_known_names_the_nearest(arguments: tuple[str, ...], hint: str) -> None:
    done = CliRunner().invoke(build_app(), list(arguments))
    assert done.exit_code == 1
    assert hint in done.stderr


def test_help_loads_no_op() -> None:
    code = (
        "import sys\nfrom tilewright.cli.main import build_app\n"
        "try:\n    build_app()(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.stdout.write(' '.join(one for one in sys.modules if one.startswith('tilewright.ops')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tilewright.ops.gemm" not in done.stdout.splitlines()[-1]


def test_no_memory_belongs_to_the_machine() -> None:
    done = CliRunner().invoke(failing_app(MemoryError("Unable to allocate 149. GiB")), ["fail"])
    assert done.exit_code == 2
    assert "149. GiB" in done.stderr
    assert "bug" not in done.stderr


def test_an_interrupt_is_one_line_and_130() -> None:
    done = CliRunner().invoke(failing_app(KeyboardInterrupt()), ["fail"])  # type: ignore[arg-type]
    assert done.exit_code == 130
    assert done.stderr == "interrupted\n"


@pytest.mark.parametrize("command", ["generate", "build"])
def test_ctrl_c_ends_workers_and_compilers_without_a_word(command: str, tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to the whole process group."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    if command == "generate":
        # Enough for several processes, and for seconds.
        words = ["generate", "gemm", "--pool", "profiler", "--target", "sm_90a", "--datatype", "bf16",
                 "--layout", "rcr,ccr", "-o", str(tmp_path / "out"), "--jobs", "2"]  # fmt: skip
    else:
        slow = write_stub(tmp_path / "bin", "sleep 60")
        environment["TILEWRIGHT_CXX"] = str(slow.path)
        words = ["build", "gemm", "--pool", "default", "--target", "generic", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright.cli.main", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
        # A job in the background, as this one may be, has told its children to ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    begun = tmp_path / "out" if command == "generate" else tmp_path / "bin" / "stub-c++.record"
    deadline = time.monotonic() + 120
    while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.rstrip().splitlines()[-1] == "interrupted"
    assert sum("interrupt" in line.lower() for line in said.splitlines()) == 1
    if command == "build":
        assert not list((tmp_path / "cache" / "kernels-v1" / "tmp").iterdir())


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


@pytest.mark.parametrize(
    ("words", "option", "following"),
    [
        (("explain", "attention", *SIZES, "--causal", "--target", "sm_90a"), "--causal", "--target"),
        (("run", "gemm", "--m", "--n", "8"), "--m", "--n"),
        (("toolchain", "install", "rocm", "--prefix", "--yes"), "--prefix", "--yes"),
    ],
)
def test_an_option_without_its_value_is_named(words: tuple[str, ...], option: str, following: str) -> None:
    """Not the word behind the next option, which the parser is left with."""
    done = CliRunner().invoke(build_app(), list(words))
    assert done.exit_code == 1
    assert f"[option-value] {option} takes a value, and the option {following} follows it" in done.stderr
    assert f"remedy: write the value after {option} (" in done.stderr
