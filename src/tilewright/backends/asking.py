"""Programs that are asked something, several at once: what they write and how they end.

Every process that meets a store asks its compiler who it is, and `subprocess` takes longer to import than all the
answers to come: where the system starts programs in one call, it is not needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from tilewright import settings
from tilewright.dataclass import NamedTuple

_POLL_SECONDS = 0.002


class Answer(NamedTuple):
    """How a program ended, and what it wrote to both of its outputs."""

    code: int
    output: str
    complaint: str


def outputs(commands: Sequence[Sequence[str]], seconds: float) -> list[Answer | OSError | TimeoutError]:
    """Of each command its answer, or why there is none; all run at once, and none longer than `seconds`."""
    if not hasattr(os, "posix_spawnp"):
        return [_by_subprocess(command, seconds) for command in commands]
    ends = time.monotonic() + seconds
    started: list[_Child | OSError] = []
    for command in commands:
        try:
            started.append(_Child(command))
        except OSError as error:
            started.append(error)
    try:
        return [child.answer(ends, seconds) if isinstance(child, _Child) else child for child in started]
    except BaseException:  # someone pressed a key: nobody waits for the others
        for child in started:
            if isinstance(child, _Child):
                child.end()
        raise


def _by_subprocess(command: Sequence[str], seconds: float) -> Answer | OSError | TimeoutError:
    import subprocess

    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            env=settings.child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TimeoutError(f"no answer within {seconds:.0f} s")
    except OSError as error:
        return error
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class _Child:
    """A program that runs, with a pipe for each of its outputs."""

    def __init__(self, command: Sequence[str]) -> None:
        from _signal import SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]  # which Python ignores, and it is not to

        pipes = [os.pipe(), os.pipe()]
        try:
            self._pid = os.posix_spawnp(
                command[0],
                list(command),
                settings.child_environment(),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, pipe[1], at) for at, pipe in enumerate(pipes, start=1)),
                ],
                setsigdef=(SIGPIPE, SIGXFSZ),
            )
        except OSError:
            for pipe in pipes:
                os.close(pipe[0])
            raise
        finally:
            for pipe in pipes:
                os.close(pipe[1])
        self._pipes = [pipe[0] for pipe in pipes]

    def answer(self, ends: float, seconds: float) -> Answer | TimeoutError:
        texts = self._read(ends)
        status = self._ended(ends) if texts is not None else None
        if texts is None or status is None:
            self.end()
            return TimeoutError(f"no answer within {seconds:.0f} s")
        return Answer(os.waitstatus_to_exitcode(status), *map(_text, texts))

    def end(self) -> None:
        """Whatever it does; one that is gone is gone."""
        with suppress(OSError):
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)

    def _read(self, ends: float) -> list[bytes] | None:
        """What it writes until it closes both pipes; None where that takes too long."""
        from select import select

        texts = dict.fromkeys(self._pipes, b"")
        waiting = list(self._pipes)
        try:
            while waiting:
                ready, _, _ = select(waiting, [], [], max(0.0, ends - time.monotonic()))
                if not ready:
                    return None
                for pipe in ready:
                    data = os.read(pipe, 1 << 16)
                    texts[pipe] += data
                    if not data:
                        waiting.remove(pipe)
        finally:
            for pipe in self._pipes:
                os.close(pipe)
        return list(texts.values())

    def _ended(self, ends: float) -> int | None:
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return status
            if time.monotonic() > ends:
                return None
            time.sleep(_POLL_SECONDS)
