"""Programs that end with us: however this process ends (a kill too), what it started does not go on for nobody.

A small shell is in between: it runs the program in a session of its own, and ends all of it when the pipe that is its
input closes, which the operating system sees to.  (The parent-death signal of Linux is of the thread that started a
program, reaches no grandchildren, and needs code between fork and exec.)  A fork of ours that lives on keeps the pipe
open, and the program with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

# The program has neither the pipe nor an input; the watcher holds none of its outputs open.  A shell that is asked to
# end waits until the program has: then nobody writes any more where it wrote.
_SCRIPT = """
trap : TERM
exec 3<&0 </dev/null
"$@" 3<&- & program=$!
{ read -r _; kill -s %s 0; } <&3 3<&- >/dev/null 2>&1 & watcher=$!
exec 3<&-
while :; do
  wait "$program"; code=$?
  kill -0 "$program" 2>/dev/null || break
done
kill -s KILL "$watcher" 2>/dev/null
exit "$code"
"""
_GRACE = 5.0  # seconds a program has to end by itself after it was asked to


class Child:
    """A running program, its words (output and errors) in one pipe; a context, after which nothing of it is left.

    `ending` is how it is ended early: SIGTERM for one that ends its own programs in other process groups, as ninja
    does; SIGKILL for compilers, whose programs stay in theirs.
    """

    def __init__(
        self, argv: Sequence[str], work: Path, environment: Mapping[str, str], ending: signal.Signals = signal.SIGKILL
    ) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT % ending.name.removeprefix("SIG"), "tilewright", *argv],
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )

    @property
    def words(self) -> IO[bytes]:
        assert self._process.stdout is not None  # asked for by PIPE
        return self._process.stdout

    def wait(self) -> int:
        """Its exit code, as a shell reports it: 128 and the number of a signal."""
        return self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.close()  # the watcher sees it, as it would if we were gone
            try:
                self._process.wait(timeout=_GRACE)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self.words.close()
