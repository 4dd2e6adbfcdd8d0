"""A device worker measures on one device: it sends kernels to a process and reports whatever happens as outcomes.

`Measures` is what a sweep asks of one, wherever its device is; `DeviceWorker` is that of a device of this machine.
"""

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
from typing import IO, Any, Protocol

from tilewright import settings
from tilewright.dispatch.results import OK
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.timing import Method
from tilewright.tune import quiet
from tilewright.tune.spent import Spent

BATCH = 20  # kernels a worker gets at a time
LIMIT = 30.0  # seconds of one kernel
START = 60.0  # seconds a worker has to start, and to make the operands of a problem
_MOST_SHOWN = 300  # characters of what a worker said before it died
# A worker that someone else ended (an operator, a system short of memory) says nothing about the kernel it was at:
# it is asked again, but not for ever.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
_MERCY = 3
_STARTS = 5  # workers of one batch that may end before they have said which device they see


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
    noise: float | None = None  # share of the machine that others used just before


class DeviceWorkerLost(Exception):
    """The device measures no more: it does not answer, or is another one now.  The text says why."""


class Measures(Protocol):
    """Where kernels are measured: one device, here or elsewhere.  Entered and used by one thread, closed by any."""

    @property
    def name(self) -> str:
        """For people: which device this is."""

    @property
    def spent(self) -> Spent:
        """Seconds so far by what they went to: run, operands, load, verify, quiet, start."""

    on_wait: quiet.Waiting | None  # hears of each wait for a quiet machine, where there is one to hear of

    def versions(self, spec: KernelSpec) -> Mapping[str, str]:
        """What makes the kernels that are measured here."""

    def prepare(self) -> None:
        """Do what can be done while kernels are built: nothing that takes the device."""

    def open(self) -> None:
        """Take the device; DeviceWorkerLost where it cannot be had."""

    def measure(self, problem: Any, kernels: Sequence[Any], method: Method) -> Iterator[Outcome]:
        """An outcome for each kernel (what the builder of its worker pool made), as soon as it is known."""

    def close(self) -> None:
        """Give the device back, whatever it is doing."""


class _Died(Exception):
    """The worker answers no more; `status` says how, the text why."""

    def __init__(self, status: str, text: str, *, outside: bool = False) -> None:
        super().__init__(text)
        self.status, self.outside = status, outside


class _WorkerProcess:
    """The process, and the lines it sends."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.tune.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env=settings.environment(), start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._ready = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, out: IO[str]) -> None:
        with suppress(ValueError, OSError):  # closed while we read
            for line in out:
                self._lines.put(line)
        self._lines.put(None)

    def started(self) -> None:
        """Until it has begun to listen; _Died where it ends before that."""
        if not self._ready:
            self.read(START)
            self._ready = True

    def send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._end() from None

    def read(self, limit: float) -> Mapping[str, Any]:
        """The next answer; _Died where there is none in time."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise _Died("timeout", f"no answer within {limit:g} s") from None
        if line is None:
            raise self._end()
        try:
            answer: Any = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise _Died("crashed", f"it answered {line.strip()[:_MOST_SHOWN]!r}")
        return answer

    def _end(self) -> _Died:
        """How the process ended, and its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        how = f"ended with status {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        outside = code is not None and -code in _FROM_OUTSIDE
        return _Died("crashed", " ".join([how, *self._words()]), outside=outside)

    def _words(self) -> list[str]:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4096))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return [f"({lines[-1][:_MOST_SHOWN]})"] if lines else []

    def close(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._errors.close()


class DeviceWorker:
    """Kernels of a target on this machine's device of it, one at a time.

    `index` is the device's where the machine has several, `fingerprint` what it must be known by all the time.
    """

    def __init__(
        self, target: str, threads: int, *, limit: float = LIMIT, patience: float | None = None,
        index: int | None = None, fingerprint: str = "",
    ) -> None:  # fmt: skip
        self.target, self.threads, self.index = target, threads, index
        self._limit, self._patience = limit, patience
        self._fingerprint = fingerprint
        self.spent = Spent()
        self._others = quiet.Others()
        self.on_wait: quiet.Waiting | None = None  # hears of each wait for a quiet machine
        self._process: _WorkerProcess | None = None
        self._closed = False
        self._greeted = False  # the worker answered the request it has now

    @property
    def name(self) -> str:
        return self.target if self.index is None else f"{self.target} device {self.index}"

    def versions(self, spec: KernelSpec) -> Mapping[str, str]:
        from tilewright.dispatch.measure import versions_of

        return versions_of(spec)

    def prepare(self) -> None:
        """A process takes a while to start."""
        self._closed = False
        if self._process is None:
            self._process = _WorkerProcess()

    def open(self) -> None:
        self.prepare()
        self._others.begin(self._pid)
        try:
            self._started()
        except _Died:
            self._drop()  # it says nothing ever again: whoever asks for something starts another
        self._others.end(self._pid)

    def _started(self) -> _WorkerProcess:
        if self._process is None:
            self._process = _WorkerProcess()
        with self.spent.on("start"):
            self._process.started()
        return self._process

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def measure(self, problem: Any, kernels: Sequence[Built], method: Method) -> Iterator[Outcome]:
        """An outcome for each kernel; one that ends the worker while it is checked costs itself, the others start anew.

        With a patience, measuring waits so long at most for others to leave the machine alone.
        """
        noise = self._settle()
        try:
            yield from self._each(problem, kernels, method, noise)
        finally:
            self._others.end(self._pid)

    def _settle(self) -> float | None:
        if self._patience is None:
            return None
        with self.spent.on("quiet"):
            noise = self._others.settle(self._patience, self.on_wait)
        self._others.begin(self._pid)
        return noise

    @property
    def _pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _each(self, problem: Any, kernels: Sequence[Built], method: Method, noise: float | None) -> Iterator[Outcome]:
        left = {kernel.spec.digest: kernel for kernel in kernels}
        alone, mercy, starts = False, _MERCY, _STARTS
        while left:
            batch = list(left.values())[:1] if alone else list(left.values())
            here = ""  # the kernel that is being checked
            try:
                for answer in self._answers(problem, batch, method):
                    if "at" in answer:
                        here = str(answer["at"])
                    elif "race" in answer:
                        here = ""
                    elif answer.get("digest") in left:
                        del left[answer["digest"]]
                        yield _outcome(answer, noise)
            except _Unmade as why:
                for digest in left:
                    yield Outcome(digest, "refused", str(why), noise=noise)
                return
            except _Died as end:
                self._drop()
                if not self._greeted:  # it came to no kernel: none is to blame
                    starts -= 1
                    if starts < 0:
                        raise DeviceWorkerLost(f"its workers do not start: {end}") from None
                elif end.outside and mercy > 0:
                    mercy -= 1
                elif here in left or len(batch) == 1:
                    blamed = here if here in left else batch[0].spec.digest
                    if left.pop(blamed, None) is not None:
                        yield Outcome(blamed, end.status, str(end), noise=noise)
                else:
                    alone = True  # one of them did it: running each alone shows which

    def _answers(self, problem: Any, batch: Sequence[Built], method: Method) -> Iterator[Mapping[str, Any]]:
        """What the worker says of a batch; DeviceWorkerLost where it says that the device is gone."""
        if self._closed:
            raise DeviceWorkerLost(f"{self.name} was closed")
        self._greeted = False
        process = self._started()
        process.send(
            {
                "op": problem.op,
                "problem": plain(problem),
                "target": self.target,
                "index": self.index,
                "threads": self.threads,
                "method": plain(method),
                "kernels": [
                    {"digest": built.spec.digest, "spec": built.spec.to_dict(), "library": str(built.library)}
                    for built in batch
                ],
            }
        )
        limit = START
        while True:
            answer = process.read(limit)
            if answer.get("done"):
                self.spent.add(answer.get("spent") or {})
                if answer.get("ends"):
                    self._drop()
                return
            self._demand_device(answer)
            if "unmade" in answer:
                self._unmade(answer, problem, method)
            if "at" in answer:
                limit = self._limit if answer["at"] else START + self._limit
            elif "race" in answer:
                limit = self._limit * max(1, int(answer["race"]))
            yield answer

    def _demand_device(self, answer: Mapping[str, Any]) -> None:
        if "lost" in answer:
            raise DeviceWorkerLost(str(answer["lost"]))
        there = answer.get("device")
        self._greeted = self._greeted or there is not None
        if there is not None and self._fingerprint and there != self._fingerprint:
            was = f"its fingerprint was {self._fingerprint} when the sweep began"
            raise DeviceWorkerLost(f"{self.name} is another device now: {was}, and is {there}")

    def _unmade(self, answer: Mapping[str, Any], problem: Any, method: Method) -> None:
        """The operands could not be made: the problem is too much for the device, or the device is gone."""
        self._drop()
        if answer.get("device_error"):
            for _ in self._answers(problem, (), method):  # a worker that is not touched by it says which
                pass
        raise _Unmade(str(answer["unmade"]))


class _Unmade(Exception):
    """There are no operands of the problem on this device; the text says why."""


def _outcome(answer: Mapping[str, Any], noise: float | None) -> Outcome:
    known = ("reason", "seconds", "spread", "error", "non_zero")
    fields = {name: answer[name] for name in known if name in answer}
    return Outcome(answer["digest"], answer.get("status", OK), **fields, noise=noise)
