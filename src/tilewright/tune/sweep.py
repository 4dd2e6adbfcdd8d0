"""Sweeps: many kernels on many problems, every outcome a row in the store, and the same again goes on where it ended.

What is to do is the product of problems and the kernels that serve them, less what the store has for this device,
these threads and this protocol.  So a sweep that was interrupted, or got new kernels or problems, costs what is new.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from tilewright import events
from tilewright.dispatch.measure import winner
from tilewright.dispatch.records import Record, Timing
from tilewright.dispatch.results import OK, KernelRow, Result, Results, canonical, problem_digest
from tilewright.ops.base import KernelSpec, Op, plain
from tilewright.runtime.timing import Method, flush_bytes
from tilewright.tune import quiet
from tilewright.tune.build_queue import BuildQueue, Heard
from tilewright.tune.device_worker import BATCH, LIMIT
from tilewright.tune.price import START, TRUST, Prices
from tilewright.tune.spent import Spent
from tilewright.tune.worker_pool import Batch, Measurement, OnLost, WorkerPool, here, measure_batches

SpecsOf = Callable[[Any], Iterable[KernelSpec]]


@dataclass(frozen=True, slots=True)
class Item:
    """One problem and the kernels that are still to be measured on it."""

    problem: Any
    specs: tuple[KernelSpec, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a sweep has to do."""

    items: tuple[Item, ...]
    known: int  # results the store has already
    unserved: tuple[Any, ...] = ()  # problems for which there is no kernel
    all_items: tuple[Item, ...] = ()  # each problem with all its kernels, measured or not
    failed: Mapping[str, int] = field(default_factory=dict)  # of the known ones, those without a time, by status

    @property
    def total(self) -> int:
        return sum(len(item.specs) for item in self.items)


@dataclass(slots=True)
class Progress:
    """How far it is, for people."""

    total: int
    done: int = 0
    built: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)
    spent: Spent = field(default_factory=Spent)  # seconds of workers, by what they went to; at the end

    expected: float = 0.0  # seconds that measuring was said to take, before any was known
    expected_done: float = 0.0  # of these, for what is done
    to_build: int = 0  # kernels that are built while others are measured
    waited: float = 0.0  # seconds that a worker waited for a quiet machine

    @property
    def seconds_left(self) -> float | None:
        """What is left takes: by what was expected of it, times as much as what is done took more or less than that.

        Waiting for a quiet machine goes on as it did so far, and is counted apart: it has nothing to do with what
        kernels take.  Not less than the compilers need, where they work beside.
        """
        if not self.done:
            return None
        taken = time.monotonic() - self.started
        rate = (max(0.0, taken - self.waited) + TRUST) / (self.expected_done + TRUST)
        waits = self.waited / self.done * (self.total - self.done)
        build = taken / self.built * max(0, self.to_build - self.built) if self.built else 0.0
        return max(rate * max(0.0, self.expected - self.expected_done) + waits, build)


@dataclass(frozen=True, slots=True)
class Options:
    """How a sweep measures."""

    method: Method = field(default_factory=lambda: Method(rounds=5))
    limit: float = LIMIT  # seconds of one kernel
    batch: int = BATCH
    jobs: int | None = None  # compilers at once
    patience: float = quiet.PATIENCE  # seconds to wait for a quiet machine before each problem
    retry: bool = False  # what failed before is measured again
    split_plans: bool = False  # the stages of every plan of `Op.split_plans`, not of the heuristic's alone


class Sweep:
    """Measurements of one op on one kind of device of a target, into one store.

    The devices are a worker pool's: without one, those of this machine.
    """

    def __init__(
        self, op: Op, target: str, store: Results, options: Options | None = None, worker_pool: WorkerPool | None = None
    ) -> None:
        self.op, self.target, self.store = op, target, store
        self.options = how = options or Options()
        self.worker_pool = worker_pool or here(target, limit=how.limit, patience=how.patience, jobs=how.jobs)
        self.threads = self.worker_pool.threads
        self._machine = self.worker_pool.machine
        self._problem: tuple[Any, Mapping[str, Any]] | None = None
        self._kernels: dict[str, KernelRow] = {}
        # The seed differs from run to run and changes no time.
        self._protocol = {
            "kind": "interleaved rounds, median", **plain(how.method), "batch": how.batch,
            "flush_bytes": flush_bytes(self.worker_pool.cache_bytes) if how.method.flush else 0,
        }  # fmt: skip

    # -- what is to do -----------------------------------------------------------------------------------

    def plan(self, problems: Iterable[Any], specs_of: SpecsOf) -> Work:
        """The kernels that serve each problem and have no result yet."""
        items: list[Item] = []
        all_items: list[Item] = []
        unserved: list[Any] = []
        known, failed = 0, Counter[str]()
        method = canonical(self._protocol)
        for stage in self._stages(problems):
            usable = [spec for spec in specs_of(stage) if not self.op.supports(spec, stage)]
            if not usable:
                unserved.append(stage)
                continue
            all_items.append(Item(stage, tuple(usable)))
            done = self.store.measured(
                self._machine["fingerprint"], self.threads, problem_digest(self.op.name, plain(stage))
            )
            counts = {
                digest: status
                for digest, (status, protocol) in done.items()
                if protocol == method and (status == OK or not self.options.retry)
            }
            left = [spec for spec in usable if spec.digest not in counts]
            failed.update(counts[spec.digest] for spec in usable if counts.get(spec.digest, OK) != OK)
            known += len(usable) - len(left)
            if left:
                items.append(Item(stage, tuple(left)))
        return Work(tuple(items), known, tuple(unserved), tuple(all_items), failed)

    def _stages(self, problems: Iterable[Any]) -> list[Any]:
        """Every problem that a kernel is measured on, each once."""
        measured: dict[Any, None] = {}
        for problem in problems:
            plans = self.op.split_plans(problem, self.target).values()
            for stages in plans if self.options.split_plans else (self.op.stages(problem, self.target),):
                measured |= dict.fromkeys(map(self.op.measured_as, stages))
        return list(measured)

    # -- doing it ----------------------------------------------------------------------------------------

    def run(
        self,
        work: Work,
        on_row: Callable[[Result, Progress], None] | None = None,
        on_build: Heard | None = None,
        on_lost: OnLost | None = None,
        on_wait: quiet.Waiting | None = None,
    ) -> Progress:
        """Measure all that is left; a row is in the store before `on_row` hears of it."""
        progress = Progress(work.total)
        for worker in self.worker_pool.workers:
            worker.on_wait = on_wait
        prices = self._priced(work, progress)
        build_queue = BuildQueue(
            (spec for item in work.items for spec in item.specs), self.worker_pool.builds, _counting(on_build, progress)
        )
        if self.worker_pool.on_host:
            self._build_all(build_queue)  # compilers beside a measurement would be measured too
            progress.spent["build"] = time.monotonic() - progress.started
            progress.started = time.monotonic()
        else:
            progress.to_build = build_queue.wanted
            build_queue.start()
        for batch in measure_batches(self.worker_pool, self._batches(work), build_queue, self.options.method, on_lost):
            if not progress.done:
                progress.started = max(progress.started, build_queue.ready_at)
            results = self._stored(batch)
            waits = [worker.spent.get("quiet", 0.0) for worker in self.worker_pool.workers]
            progress.waited = sum(waits) / len(waits)
            for measurement, row in zip(batch, results, strict=True):
                progress.done += 1
                progress.expected_done += prices[measurement.problem]
                if row.status != OK:
                    progress.failed[row.status] += 1
                if on_row is not None:
                    on_row(row, progress)
        for worker in self.worker_pool.workers:
            progress.spent.add(worker.spent)
        return progress

    def _priced(self, work: Work, progress: Progress) -> dict[Any, float]:
        """What a row of each problem is expected to take: as its first kernel does, and its part of what they share."""
        price, method, workers = (
            Prices(self.op.name, self.target, self.threads),
            self.options.method,
            len(self.worker_pool.workers),
        )
        prices = {
            item.problem: (
                price.row(item.specs[0], item.problem, method) + price.problem(item.problem) / len(item.specs)
            )
            / workers
            for item in work.items
        }
        progress.expected_done = START
        progress.expected = START + sum(prices[item.problem] * len(item.specs) for item in work.items)
        return prices

    def _build_all(self, build_queue: BuildQueue) -> None:
        """With workers that get ready meanwhile."""
        try:
            for worker in self.worker_pool.workers:
                worker.prepare()
            build_queue.build_all()
        except BaseException:
            for worker in self.worker_pool.workers:
                worker.close()
            raise

    def _batches(self, work: Work) -> list[Batch]:
        size = max(1, self.options.batch)
        return [
            Batch(item.problem, item.specs[first : first + size])
            for item in work.items
            for first in range(0, len(item.specs), size)
        ]

    def _stored(self, batch: Iterable[Measurement]) -> list[Result]:
        """The rows of what came, however many at once; an interruption costs only those after it."""
        rows: list[Result] = []
        try:
            for measurement in batch:
                rows.append(self._result(measurement))
        finally:
            self.store.put(rows)
        return rows

    def _result(self, measurement: Measurement) -> Result:
        outcome = measurement.outcome
        return Result(
            self.op.name, self._fields(measurement.problem), self._machine, self.threads,
            self._kernel(measurement.spec), outcome.status, outcome.seconds, outcome.spread, outcome.error,
            outcome.non_zero, outcome.noise, outcome.reason, self._protocol, measurement.versions,
        )  # fmt: skip

    # Rows of a batch share them, and every problem has the same kernels.

    def _fields(self, problem: Any) -> Mapping[str, Any]:
        if self._problem is None or self._problem[0] is not problem:
            self._problem = (problem, plain(problem))
        return self._problem[1]

    def _kernel(self, spec: KernelSpec) -> KernelRow:
        if spec.digest not in self._kernels:
            self._kernels[spec.digest] = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
        return self._kernels[spec.digest]

    # -- what came of it -----------------------------------------------------------------------------------

    def results(self, item: Item) -> list[Result]:
        """What the store has of a problem's kernels on this device by this protocol, the fastest first."""
        wanted = {spec.digest for spec in item.specs}
        method, here = canonical(self._protocol), self._machine["fingerprint"]
        return [
            result
            for result in self.store.of_problem(self.op.name, plain(item.problem))
            if result.kernel.digest in wanted
            and (result.device.get("fingerprint"), result.threads) == (here, self.threads)
            and canonical(result.method) == method
        ]

    def record(self, item: Item, incumbent: str) -> Record | None:
        """The times of a problem and its winner: the incumbent (a digest), unless it is measurably slower."""
        timed = [result for result in self.results(item) if result.status == OK and result.seconds is not None]
        if not timed:
            return None
        order = {spec.digest: index for index, spec in enumerate(item.specs)} | {incumbent: -1}
        ranked = sorted(timed, key=lambda result: order[result.kernel.digest])
        best = ranked[winner([(result.seconds or 0.0, result.spread) for result in ranked])]
        timings = tuple(
            Timing(result.kernel.digest, result.kernel.name, result.kernel.spec, result.seconds or 0.0, result.spread,
                   result.error or 0.0)
            for result in timed
        )  # fmt: skip
        return Record(
            self.op.name, plain(item.problem), self.threads, self.target, best.kernel.digest, timings, best.method,
            best.versions, self._machine,
        )  # fmt: skip


def _counting(heard: Heard | None, progress: Progress) -> Heard:
    def count(event: events.Event) -> None:
        progress.built += isinstance(event, (events.KernelBuilt, events.BuildFailed))
        if heard is not None:
            heard(event)

    return count


def run_all(
    works: Sequence[tuple[Sweep, Work]],
    on_row: Callable[[Result, Progress], None] | None = None,
    on_build: Heard | None = None,
    on_lost: OnLost | None = None,
    on_wait: quiet.Waiting | None = None,
) -> None:
    """Sweeps side by side, each on devices of its own; one that fails stops no other, and is raised at the end."""
    works = [pair for pair in works if pair[1].total]
    if len(works) == 1:
        works[0][0].run(works[0][1], on_row, on_build, on_lost, on_wait)
        return
    lock = threading.Lock()
    troubles: list[BaseException] = []

    def one_at_a_time(call: Callable[..., None] | None) -> Any:
        def locked(*values: Any) -> None:
            if call is not None:
                with lock:
                    call(*values)

        return locked

    def run(sweep: Sweep, work: Work) -> None:
        try:
            sweep.run(work, *map(one_at_a_time, (on_row, on_build, on_lost, on_wait)))
        except BaseException as error:
            troubles.append(error)

    team = [threading.Thread(target=copy_context().run, args=(run, *pair), daemon=True) for pair in works]
    for each in team:
        each.start()
    try:
        for each in team:
            each.join()
    finally:  # interrupted: what the workers say now is heard by nobody
        for sweep, _ in works:
            for worker in sweep.worker_pool.workers:
                worker.close()
    if troubles:
        raise troubles[0]


def candidates(op: Op, target: str) -> SpecsOf:
    """The kernels dispatch would choose from."""
    return lambda problem: op.candidates(op.signature_of(problem), target)


def of_pool(op: Op, target: str, pool: str) -> SpecsOf:
    """The legal kernels of a pool with the problem's signature."""
    known: dict[Any, list[KernelSpec]] = {}

    def specs(problem: Any) -> Sequence[KernelSpec]:
        signature = op.signature_of(problem)
        if signature not in known:
            proposed = op.proposals(pool, target, **op.axes_of(signature))
            known[signature] = [spec for spec in proposed if spec.signature == signature and not op.check(spec)]
        return known[signature]

    return specs


def of_list(op: Op, specs: Iterable[KernelSpec]) -> SpecsOf:
    """Those of a list with the problem's signature."""
    by_signature: dict[Any, list[KernelSpec]] = {}
    for spec in specs:
        by_signature.setdefault(spec.signature, []).append(spec)
    return lambda problem: by_signature.get(op.signature_of(problem), ())
