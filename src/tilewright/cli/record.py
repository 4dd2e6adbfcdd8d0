"""`tilewright record -- PROGRAM`: the problems a program runs, counted into a problem set."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.common import say
from tilewright.errors import RequestError, counted

_LIKE_SHELLS = 128  # and the number of the signal that ended the program


def register(app: typer.Typer) -> None:
    # What comes after the program is the program's.
    app.command("record", context_settings={"allow_interspersed_args": False})(record)


def record(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM [WORDS...]", help="Command line of a program that uses Tilewright, after --."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Problem set to write or extend (JSON).")
    ] = Path("recorded.json"),
) -> None:
    """Run a program, and count the problems that it and its child processes compute.

    The file is a problem set: `tilewright problems show OP FILE`, `tilewright bench OP --problems FILE`.  Exits as the
    program does.
    """
    from tilewright import settings
    from tilewright.runtime import recording

    path = output.absolute()
    recording.demand_place(path)
    before = recording.read(path)
    with settings.override(record=str(path)):
        code = _run(program, settings.environment())
    calls = Counter(recording.read(path))
    new = calls - Counter(before)
    if new:
        ops = ", ".join(f"{count} of {op}" for op, count in sorted(Counter(op for op, _ in new).items()))
        say(f"{counted(new.total(), 'call')} of {counted(len(new), 'problem')} ({ops}) recorded in {output}")
    else:
        say(f"the program gave no problem to a kernel: nothing was added to {output}")
    if code:
        raise typer.Exit(code)


def _run(program: list[str], environment: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(program, env=environment)
    except OSError as error:
        raise RequestError(
            f"{program[0]} cannot be run: {error.strerror or error}",
            rule="record-program",
            value=program[0],
            remedy="give a program and its words after --, such as `tilewright record -- python train.py`",
        ) from None
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the program got it too, and ends when it likes
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code if code >= 0 else _LIKE_SHELLS - code
