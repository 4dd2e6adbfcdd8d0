"""Rendering in several processes.

A worker is a plain process of `python -m tilewright.codegen`, fed through pipes.  A fork would copy
the caller's threads in an unknown state, and a `multiprocessing` spawn would run the caller's main
module again.  Whatever happens to a worker, files are whole (see `folder`).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from tilewright import plugins, settings
from tilewright.codegen.files import Emitted, emit_many
from tilewright.errors import InternalError, MachineError, TilewrightError
from tilewright.ops.base import KernelSpec

CHUNK = 250  # specs a message: small enough for progress, large enough to hide the pipe
PAYS_FROM = 4000  # specs a process: below this its start costs about what it saves

Progress = Callable[[int, int], None]  # called with (done, total)


def chunks(specs: Sequence[KernelSpec]) -> Iterator[Sequence[KernelSpec]]:
    return (specs[start : start + CHUNK] for start in range(0, len(specs), CHUNK))


def processes_for(count: int, jobs: int) -> int:
    """How many processes pay for `count` specs."""
    return max(1, min(jobs, count // PAYS_FROM)) if sys.executable else 1


def emit_in_processes(
    specs: Sequence[KernelSpec], folder: Path, processes: int, on_progress: Progress | None = None
) -> list[Emitted]:
    """Render and write all specs with `processes` workers; the answer is in no particular order."""
    waiting: SimpleQueue[Sequence[KernelSpec]] = SimpleQueue()
    now = settings.current()  # the feeders are threads, which do not inherit those of a scope
    for chunk in chunks(specs):
        waiting.put(chunk)
    emitted: list[Emitted] = []
    failed: list[BaseException] = []
    lock = Lock()

    def feed() -> None:
        try:
            with _Worker(folder, now) as worker:
                while not failed:
                    try:
                        chunk = waiting.get_nowait()
                    except Empty:
                        return
                    done = worker.emit(chunk)
                    with lock:
                        emitted.extend(done)
                        if on_progress is not None:
                            on_progress(len(emitted), len(specs))
        except BaseException as error:
            failed.append(error)
            raise

    with ThreadPoolExecutor(processes) as pool:
        try:
            for feeder in [pool.submit(feed) for _ in range(processes)]:
                feeder.result()
        except BaseException as error:  # an interrupt reaches this thread only: the feeders must hear of it
            failed.append(error)
            raise
    return emitted


class _Worker:
    """One process of our own that renders chunk after chunk."""

    def __init__(self, folder: Path, now: settings.Settings) -> None:
        self._folder, self._settings = folder, now
        command = [sys.executable, "-m", "tilewright.codegen"]
        try:
            # A session of its own: Ctrl-C is ours to answer, a worker ends with its input.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise MachineError(
                f"cannot start a rendering process: {error}",
                rule="render-worker",
                value=sys.executable,
                remedy="use --jobs 1",
            ) from None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what a dead worker did not read is of no use now
                    pipe.close()  # end of input: a living worker leaves by itself
        self._process.wait()

    def emit(self, chunk: Sequence[KernelSpec]) -> list[Emitted]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((str(self._folder), self._settings, list(chunk)), self._process.stdin)
            self._process.stdin.flush()
            answer: list[Emitted] | TilewrightError = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise MachineError(
                f"a rendering process died with code {self._process.wait()}",
                rule="render-worker",
                value=self._process.returncode,
                remedy="run again (what is written is whole), with --jobs 1 if memory is short",
            ) from None
        if isinstance(answer, TilewrightError):
            raise answer
        return answer


def serve(requests: Any, answers: Any) -> None:
    """The worker's side: chunks in, results out, until the input ends."""
    while True:
        try:
            folder, wanted, chunk = pickle.load(requests)
        except EOFError:
            return
        answer: list[Emitted] | TilewrightError
        try:
            with settings.use(wanted):
                answer = emit_many(chunk, Path(folder))
        except TilewrightError as error:
            answer = error
        except Exception as error:
            answer = plugins.plugin_error(error) or InternalError(
                f"rendering failed: {type(error).__name__}: {error}", rule="render"
            )
        pickle.dump(answer, answers)
        answers.flush()
