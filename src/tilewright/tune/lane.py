"""One lane measures on one device: it sends batches to a worker process and turns whatever happens into rows."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tilewright import settings
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.timing import Method

BATCH = 20  # kernels a worker gets at a time
LIMIT = 30.0  # seconds of one kernel
_START = 60.0  # seconds a worker has to start, and to make the operands of a problem
_TOLD = 300  # characters of what a worker said before it died


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel and its library."""

    spec: KernelSpec
    library: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel on one problem."""

    digest: str
    status: str
    reason: str = ""
    seconds: float | None = None
    spread: float | None = None
    error: float | None = None
    non_zero: int | None = None


class _Died(Exception):
    """The worker answers no more; `status` says how, the text why."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Worker:
    """The process, and the lines it sends."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.tune.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env=settings.environment(), start_new_session=True,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, out: IO[str]) -> None:
        with suppress(ValueError, OSError):  # closed while we read
            for line in out:
                self._lines.put(line)
        self._lines.put(None)

    def send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise _Died("crashed", self._how()) from None

    def read(self, limit: float) -> Mapping[str, Any]:
        """The next answer; _Died where none comes in time, or ever again."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise _Died("timeout", f"no answer within {limit:g} s") from None
        if line is None:
            raise _Died("crashed", self._how())
        try:
            found: Any = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _Died("crashed", f"it answered {line.strip()[:_TOLD]!r}")
        return found

    def _how(self) -> str:
        """How the process ended, and its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
                return " ".join([how, *self._words()])
        return " ".join([f"ended with status {code}", *self._words()])

    def _words(self) -> list[str]:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4096))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return [f"({lines[-1][:_TOLD]})"] if lines else []

    def close(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for one in (self._process.stdin, self._process.stdout):
            if one is not None:
                with suppress(OSError):
                    one.close()
        self._errors.close()


class Lane:
    """Kernels of a target on this machine's device of it, one at a time."""

    def __init__(self, target: str, threads: int, *, limit: float = LIMIT, batch: int = BATCH) -> None:
        self.target, self.threads = target, threads
        self._limit, self._batch = limit, max(1, batch)
        self._worker: _Worker | None = None

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def measure(self, problem: Any, kernels: Sequence[Built], method: Method) -> Iterator[Outcome]:
        """An outcome for each kernel, as soon as it is known."""
        for first in range(0, len(kernels), self._batch):
            yield from self._several(problem, kernels[first : first + self._batch], method)

    def _several(self, problem: Any, kernels: Sequence[Built], method: Method) -> Iterator[Outcome]:
        """One batch: a kernel that ends the worker while it is checked costs itself, the others start anew."""
        left = {one.spec.digest: one for one in kernels}
        alone = False
        while left:
            batch = list(left.values())[:1] if alone else list(left.values())
            here = ""  # the kernel that is being checked
            racing = False
            try:
                for answer in self._answers(problem, batch, method):
                    if "at" in answer:
                        here = str(answer["at"])
                    elif "race" in answer:
                        here, racing = "", True
                    elif answer.get("digest") in left:
                        del left[answer["digest"]]
                        yield _outcome(answer)
            except _Died as end:
                self._drop()
                if here in left or len(batch) == 1:
                    blamed = here if here in left else batch[0].spec.digest
                    if left.pop(blamed, None) is not None:
                        yield Outcome(blamed, end.status, str(end))
                elif racing or not here:
                    alone = True  # one of them did it: each by itself tells which

    def _answers(self, problem: Any, batch: Sequence[Built], method: Method) -> Iterator[Mapping[str, Any]]:
        if self._worker is None:
            self._worker = _Worker()
        self._worker.send(
            {
                "op": problem.op,
                "problem": plain(problem),
                "target": self.target,
                "threads": self.threads,
                "method": plain(method),
                "kernels": [
                    {"digest": one.spec.digest, "spec": one.spec.to_dict(), "library": str(one.library)}
                    for one in batch
                ],
            }
        )
        limit = _START
        while True:
            answer = self._worker.read(limit)
            if answer.get("done"):
                return
            if "at" in answer:
                limit = self._limit if answer["at"] else _START + self._limit
            elif "race" in answer:
                limit = self._limit * max(1, int(answer["race"]))
            yield answer


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    known = ("status", "reason", "seconds", "spread", "error", "non_zero")
    return Outcome(answer["digest"], **{name: answer[name] for name in known if name in answer})
