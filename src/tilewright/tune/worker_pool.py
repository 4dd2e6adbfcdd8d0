"""Who does a sweep: devices that are alike, a worker for each, and where their kernels are built.

The sweep asks nothing else about where its work is done.  `here` is the worker pool of this machine; `cluster` makes
those of several machines.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from tilewright.dispatch.records import threads_of
from tilewright.errors import DeviceError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.devices import HOST, device_of, identified, module_of, runs
from tilewright.runtime.host import thread_count
from tilewright.runtime.timing import Method
from tilewright.tune.build_queue import BuildQueue, Builds, LocalBuilds, Stopped
from tilewright.tune.device_worker import DeviceWorker, DeviceWorkerLost, Measures, Outcome

_LOSSES = 2  # devices a batch may cost before its kernels are measured one by one, and one kernel before it is blamed
_JOIN = 10.0  # seconds that workers have to end

OnLost = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Devices with one fingerprint, and where their kernels are built."""

    machine: Mapping[str, Any]  # what the devices are, with the fingerprint
    threads: int  # of the host; 0 where they do not matter
    cache_bytes: int
    on_host: bool  # kernels run where compilers do: all is built before anything is measured
    builds: Builds
    workers: tuple[Measures, ...]


def here(target: str, *, limit: float, patience: float, jobs: int | None) -> WorkerPool:
    """This machine: one worker for each of its devices that are like the one the target means."""
    device = device_of(target)
    on_host = device.place == HOST
    machine, threads = identified(device.identity), threads_of(target, thread_count())
    alike: list[int | None] = [None]
    if not on_host:
        devices = [other for other in module_of(device.place.kind).all_devices() if runs(other, target)]
        same = [other.place.ordinal for other in devices if identified(other.identity) == machine]
        alike = list(same) if len(same) > 1 else alike
    workers = tuple(
        DeviceWorker(target, threads or 1, limit=limit, patience=patience if on_host else None, index=index,
             fingerprint=machine["fingerprint"])
        for index in alike
    )  # fmt: skip
    return WorkerPool(machine, threads, device.cache_bytes, on_host, LocalBuilds(jobs), workers)


# -- a worker pool at work -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels of one problem that a worker measures together."""

    problem: Any
    specs: tuple[KernelSpec, ...]
    losses: int = 0  # devices that were lost over it


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of a kernel on a problem, and what made the kernel."""

    problem: Any
    spec: KernelSpec
    outcome: Outcome
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Lost:
    name: str
    why: str


class _Todo:
    """Batches that wait for a worker; one whose device was lost goes back to the front."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._waiting = deque(batches)
        self._busy = 0
        self._changed = threading.Condition()
        self._over = False

    @property
    def left(self) -> int:
        return sum(len(batch.specs) for batch in self._waiting)

    def take(self) -> Batch | None:
        """The next; while others are at work one may return, so who finds none waits for them."""
        with self._changed:
            while self._busy and not self._waiting and not self._over:
                self._changed.wait()
            if self._over or not self._waiting:
                return None
            self._busy += 1
            return self._waiting.popleft()

    def done(self, back: Sequence[Batch] = ()) -> None:
        with self._changed:
            self._busy -= 1
            self._waiting.extendleft(reversed(back))
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()


class _WorkerThread:
    """One worker's thread: takes batches, waits for their kernels, passes on what the worker says of them."""

    def __init__(
        self, worker: Measures, todo: _Todo, build_queue: BuildQueue, method: Method, answers: SimpleQueue[Any]
    ) -> None:
        self.worker = worker
        self._todo, self._build_queue, self._method, self._answers = todo, build_queue, method, answers
        # It starts the worker's process, which ends with this very thread; the settings in force are the caller's.
        self.thread = threading.Thread(target=copy_context().run, args=(self._work,), daemon=True, name="device worker")

    def _work(self) -> None:
        try:
            self.worker.open()
            while (batch := self._todo.take()) is not None:
                self._run_batch(batch)
        except DeviceWorkerLost as lost:
            self._answers.put(_Lost(self.worker.name, str(lost)))
        except Stopped:
            pass
        except BaseException as error:
            self._answers.put(error)
        finally:
            self.worker.close()
            self._answers.put(None)

    def _run_batch(self, batch: Batch) -> None:
        left = {spec.digest: spec for spec in batch.specs}

        def say(outcome: Outcome) -> None:
            spec = left.pop(outcome.digest)
            self._answers.put(Measurement(batch.problem, spec, outcome, self.worker.versions(spec)))

        try:
            built, failed = self._build_queue.wait(batch.specs)
            for digest, why in failed.items():
                say(Outcome(digest, "build-failed", why))
            for outcome in self.worker.measure(batch.problem, built, self._method):
                say(outcome)
        except DeviceWorkerLost as lost:
            back = _again(Batch(batch.problem, tuple(left.values()), batch.losses + 1))
            if not back:
                for digest in list(left):
                    say(Outcome(digest, "crashed", f"{batch.losses + 1} devices were lost over it: {lost}"))
            self._todo.done(back)
            raise
        self._todo.done()


def _again(batch: Batch) -> list[Batch]:
    """What is left of a batch whose device was lost, for another one; nothing where one kernel is to blame."""
    if batch.losses < _LOSSES:
        return [batch] if batch.specs else []
    if len(batch.specs) > 1:
        return [Batch(batch.problem, (spec,)) for spec in batch.specs]
    return []


def measure_batches(
    worker_pool: WorkerPool,
    batches: Sequence[Batch],
    build_queue: BuildQueue,
    method: Method,
    on_lost: OnLost | None = None,
) -> Iterator[list[Measurement]]:
    """The workers' messages in order, several together where they arrived so.

    DeviceError where something is left and no device to measure it on.
    """
    todo = _Todo(batches)
    answers: SimpleQueue[Any] = SimpleQueue()
    team = [_WorkerThread(worker, todo, build_queue, method, answers) for worker in worker_pool.workers]
    losses: list[_Lost] = []
    try:
        for member in team:
            member.thread.start()
        working = len(team)
        while working:
            heard = _all_of(answers)
            rows = [message for message in heard if isinstance(message, Measurement)]
            if rows:
                yield rows
            for message in heard:
                if isinstance(message, BaseException):
                    raise message
                if isinstance(message, _Lost):
                    losses.append(message)
                    if on_lost is not None:
                        on_lost(f"{message.name} is lost: {message.why}")
                working -= message is None
    finally:
        todo.close()
        build_queue.stop()
        for member in team:
            member.worker.close()
        for member in team:
            member.thread.join(_JOIN)
    if todo.left:
        raise _all_lost(losses, todo.left)


def _all_of(answers: SimpleQueue[Any]) -> list[Any]:
    """What is there, at least one."""
    messages = [answers.get()]
    try:
        while True:
            messages.append(answers.get_nowait())
    except Empty:
        return messages


def _all_lost(losses: Sequence[_Lost], left: int) -> DeviceError:
    last = losses[-1]
    more = f" ({len(losses)} devices are lost)" if len(losses) > 1 else ""
    return DeviceError(
        f"{last.name} is lost{more}, and {left} measurements are left: {last.why}",
        rule="device-lost",
        value=last.name,
        remedy="fix the device (`tilewright doctor` says what it sees of it); what was measured is in the store, and "
        "the same command goes on from there",
    )
