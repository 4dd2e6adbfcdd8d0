"""`prepare`: kernels for future problems, built before the first call needs one.

    tw.prepare(OP, m=(1, 8192), n=4096, k=4096, dtype="bf16")    ranges of an op's options
    tw.prepare("mine.json")                                      what a program ran (`tw.record`)
    tw.prepare(OP, problems="llm-decode", datatype="bf16")       a problem set, as `bench --problems` takes it
    tw.prepare(lambda: model(batch))                             what a call of this runs
    tw.prepare(tw.Ranges(OP, ...), tw.Ranges(OTHER, ...))        several at once

A range is sampled (`ranges`), each problem asks selection for the times of all kernels that serve it, and the fewest
kernels that serve every problem within the loss are built (`cover`).  Where a record or a lock file chooses, its kernel
is among them.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import events, ops, plugins, settings
from tilewright.backends.base import not_runnable, resolve_target
from tilewright.dispatch import kernels
from tilewright.dispatch.missing import LOSS
from tilewright.dispatch.registry import Registry, default_registry
from tilewright.errors import RequestError, TilewrightError, shown
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime import recording, samples, torch_arrays, torch_memory
from tilewright.runtime.calls import caller
from tilewright.runtime.devices import Device, device_of
from tilewright.runtime.host import team, thread_count
from tilewright.runtime.support import build_support
from tilewright.tune import problem_sets
from tilewright.tune.cover import Cover, Times, cover
from tilewright.tune.ranges import Ranges, described, options_of

OnProgress = Callable[[int, int], None]  # (done, total)
MOST_RUN_BYTES = 64 << 20  # of a problem that is run only to have done so


@dataclass(frozen=True, slots=True)
class PreparedKernel:
    """One of the kernels, and of how many problems it is the best of them."""

    name: str
    digest: str
    problems: int
    seconds: float  # of its compiler; 0 where the store had it


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was prepared; `print` it."""

    target: str
    loss: float  # that was allowed
    problems: int  # that were looked at
    skipped: int  # points of the ranges that are no problem of the op
    kernels: tuple[PreparedKernel, ...]
    choices: int  # kernels that would be built if every problem had its best
    worst: float  # loss of the problem that loses most, by selection's own times
    mean: float
    seconds: float
    built: bool  # or only planned
    missing: str  # the setting in force

    @property
    def compiled(self) -> int:
        return sum(kernel.seconds > 0 for kernel in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        return {**plain(self), "compiled": self.compiled}

    def __str__(self) -> str:
        single = len(self.kernels) == 1
        lines = [
            f"{len(self.kernels)} kernel{'' if single else 's'} serve{'s' if single else ''} "
            f"{self.problems} problems on "
            f"{self.target}, of which the best would be {self.choices}",
            f"loss      worst {self.worst:.1%}, mean {self.mean:.2%} (at most {self.loss:.1%} allowed, by estimates)",
            f"built     {self.compiled} compiled, {len(self.kernels) - self.compiled} in the store already, "
            f"{self.seconds:.1f} s"
            if self.built
            else f"built     nothing (build=False); {self.seconds:.1f} s",
        ]
        if self.skipped:
            lines.append(f"skipped   {self.skipped} points of the ranges, which are no legal problems")
        lines += [f"{kernel.problems:8}  {kernel.name}" for kernel in self.kernels]
        if self.missing == "compile":
            lines.append("missing   is 'compile': a size whose best is not among these compiles; set it to best_built")
        return "\n".join(lines)


def prepare(
    *what: Any,
    loss: float = LOSS,
    problems: str | Path | None = None,
    target: str | None = None,
    threads: int = 0,
    jobs: int = 0,
    build: bool = True,
    load: bool = True,
    progress: OnProgress | None = None,
    **options: Any,
) -> Prepared:
    """Build the fewest kernels that serve future problems within a loss, and say which these are.

    `what` is an op's name (with its options, of which some are ranges, or with `problems`), `Ranges`, a problem
    (options then change it), the path of a recording or a problem set, a function to call once, or a list of these.
    `loss` is the most time a problem may lose by not getting its best kernel: 0.03 is 3 %.  `build=False` only plans.
    Where the target runs here the kernels are loaded too, on the current device, and the smallest problem of each op is
    run once, so that no call of this process waits for anything; `load=False` only builds.
    """
    start = time.perf_counter()
    if isinstance(loss, bool) or not isinstance(loss, (int, float)) or not 0 <= loss < 10:
        raise RequestError(
            f"loss is {shown(loss)}", rule="prepare-loss", value=shown(loss), remedy="give 0.03 for 3 %, 0 or more"
        )
    registry = default_registry(resolve_target(target, to_run=False).name)
    with ExitStack() as scope:
        if threads:
            scope.enter_context(settings.override(threads=threads))
        wanted = Wanted(registry)
        for problem in problems_of(registry, what, options, problems):
            wanted.add(problem)
        cover = wanted.covered(loss)
        compiled = _build(registry, cover.specs, jobs, progress, load) if build else {}
        if build and load and not_runnable(registry.target) is None:
            _warm(registry, cover.specs, wanted.smallest.values())
    return Prepared(
        registry.target,
        float(loss),
        len(wanted.times),
        wanted.skipped,
        tuple(
            PreparedKernel(spec.name, spec.digest, count, compiled.get(spec.digest, 0.0))
            for spec, count in zip(cover.specs, cover.problems, strict=True)
        ),
        len(wanted.best),
        max(cover.losses, default=0.0),
        sum(cover.losses) / max(1, len(cover.losses)),
        time.perf_counter() - start,
        build,
        settings.current().missing,
    )


class Wanted:
    """What selection says of problems, one after another."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.specs: dict[str, KernelSpec] = {}
        self._error: TilewrightError | None = None
        self.times: dict[Any, Times] = {}  # by stage
        self.best: set[str] = set()
        self.smallest: dict[str, Any] = {}  # by op
        self.skipped = 0

    def add(self, make: Callable[[], Any]) -> None:
        """A problem; one that is none is skipped, unless all are."""
        try:
            with settings.override(missing="compile"):
                problem = make()
                self.stages(problem)
            smallest = self.smallest.get(problem.op)
            if smallest is None or problem.bytes < smallest.bytes:
                self.smallest[problem.op] = problem
        except TilewrightError as error:
            self._error = self._error or error
            self.skipped += 1

    def stages(self, problem: Any) -> tuple[Any, ...]:
        """The stages of a problem, each of which was asked about."""
        stages = self._registry.stages(problem)
        for stage in stages:
            if stage not in self.times:
                self.times[stage] = self.ask(stage)
        return stages

    def ask(self, stage: Any) -> Times:
        """The times of all kernels that serve a stage, or that of the one which nothing else has a say beside."""
        threads = thread_count()
        chosen = self._registry.select_stage(stage, threads=threads)
        self.specs.setdefault(chosen.spec.digest, chosen.spec)
        self.best.add(chosen.spec.digest)
        if chosen.tier not in ("model", "heuristic") or chosen.by:
            return {chosen.spec.digest: chosen.seconds}  # no other has a say beside it
        times = self._registry.times(stage, threads)
        for spec, _ in times:
            self.specs.setdefault(spec.digest, spec)
        return {spec.digest: seconds for spec, seconds in times}

    def covered(self, loss: float) -> Cover:
        if not self.times:
            raise self._error or RequestError(
                "there is nothing to prepare for",
                rule="prepare-what",
                value=None,
                remedy="give an op and ranges, a file of problems, or a function that runs some",
            )
        return cover(list(self.times.values()), self.specs, loss)


def _build(
    registry: Registry, specs: Iterable[KernelSpec], jobs: int, progress: OnProgress | None, load: bool
) -> dict[str, float]:
    """Seconds of compilers by digest."""
    wanted = list(specs)
    seconds: dict[str, float] = {}

    def heard(event: events.Event) -> None:
        if isinstance(event, events.KernelBuilt):
            seconds[event.digest] = 0.0 if event.cached else max(event.seconds, 1e-9)
            if progress is not None:
                progress(len(seconds), len(wanted))

    if not_runnable(registry.target) is None:
        (kernels.kernels if load else kernels.build)(wanted, max_workers=jobs or None, on_event=heard)
        build_support()
    else:
        kernels.build(wanted, max_workers=jobs or None, on_event=heard)
    return seconds


def _warm(registry: Registry, specs: Iterable[KernelSpec], smallest: Iterable[Any]) -> None:
    """What else the first calls would wait for: modules, threads of host kernels, code on a device, and whatever a call
    does only once."""
    for op in {spec.op for spec in specs}:
        caller(op).ready()
        if op in plugins.names("tilewright.api"):
            plugins.load("tilewright.api", op, "a name of the API")
    there = device_of(registry.target)
    team(thread_count())
    for kernel in kernels.kernels(list(specs)):
        there.load(kernel)
    # Where PyTorch is loaded and has not begun, it is about to bring memory of its own.
    if not torch_arrays.loaded() or torch_memory.started() is not None:
        with there.scratch(1):  # a stream's workspace
            pass
    for problem in smallest:
        if problem.bytes <= MOST_RUN_BYTES:
            _run_once(registry, problem, there)
    gc.collect()  # of what was made here; else a full collection waits for a call, which plans alone never set off


def _run_once(registry: Registry, problem: Any, there: Device) -> None:
    """A call with made-up operands, as later ones will be: it must neither compile nor be counted."""
    call = caller(problem.op)
    try:
        with settings.override(missing="best_built", record=""):
            sample = samples.make(call.binding, problem, 0, there)
            operands = call.binding.packed_for(registry, problem, sample.operands)
            call.run(registry, operands, sample.scalars, sample.attributes)
            there.synchronize()
    except TilewrightError as error:  # the kernels are there all the same, and the first call says what is wrong
        events.emit(events.Warned("prepare-run", f"{problem.describe()} was not run: {error.message}"))


# -- which problems ----------------------------------------------------------------------------------------------------

Made = Callable[[], Any]


def problems_of(
    registry: Registry, what: tuple[Any, ...], options: Mapping[str, Any], problems: str | Path | None
) -> Iterator[Made]:
    """Each problem as what makes it: one that cannot be made is skipped."""
    if options or problems is not None:
        if len(what) != 1 or (problems is not None and not isinstance(what[0], str)):
            raise _what(what, "options are of one op or one problem", "give tw.Ranges(OP, ...) for each")
        if problems is not None:
            yield from _of_set(registry, what[0], str(problems), options)
        elif isinstance(what[0], str):
            yield from _of_ranges(registry, Ranges(what[0], **options))
        elif hasattr(what[0], "describe"):
            yield from _of_ranges(registry, Ranges(what[0].op, **{**options_of(what[0]), **options}))
        else:
            raise _what(what[0], "options are of one op or one problem", "leave them out")
        return
    for item in what:
        yield from _of_one(registry, item)


def _of_one(registry: Registry, item: Any) -> Iterator[Made]:
    if isinstance(item, Ranges):
        yield from _of_ranges(registry, item)
    elif isinstance(item, (str, Path)):
        yield from _of_word(registry, str(item))
    elif hasattr(item, "describe") and hasattr(item, "op"):
        yield lambda: item
    elif callable(item):
        yield from _of_run(registry, item)
    elif isinstance(item, (list, tuple)):
        for each in item:
            yield from _of_one(registry, each)
    else:
        raise _what(item, f"{shown(item)} says nothing of problems", "give Ranges, a problem, a file or a function")


def _what(value: Any, why: str, remedy: str) -> RequestError:
    return RequestError(f"prepare: {why}", rule="prepare-what", value=shown(value), remedy=remedy)


def _of_ranges(registry: Registry, ranges: Ranges) -> Iterator[Made]:
    for values in ranges.values():
        yield lambda values=values: described(values, ranges.op, registry.arch)  # type: ignore[misc]


def _of_set(registry: Registry, op: str, word: str, options: Mapping[str, Any]) -> Iterator[Made]:
    known_op = ops.op(op)
    defaults = Ranges(op, **options).options
    for row in problem_sets.values(known_op, word, registry.arch.backend):
        named = {option.name for option in known_op.options}.issuperset(row)
        if named:
            yield lambda row=row: described({**defaults, **row}, known_op, registry.arch)  # type: ignore[misc]
        else:
            yield lambda row=row: problem_sets.problem(known_op, row)  # type: ignore[misc]


def _of_word(registry: Registry, word: str) -> Iterator[Made]:
    """A file or the name of a set, of all ops that it has problems of."""
    if word in ops.op_names():
        raise _what(
            word, f"{word} is given without sizes of its problems", f'prepare("{word}", m=(1, 64), ...), or problems='
        )
    having = [op for op in ops.op_names() if _has(word, op)]
    if not having:
        known = dict.fromkeys(key for op in ops.op_names() for key in problem_sets.keys(ops.op(op)))
        raise _what(
            word, f"{word!r} is no op, problem set or recording", f"sets: {', '.join(known)}; or name the op too"
        )
    for op in having:
        yield from _of_set(registry, op, word, {})


def _has(word: str, op: str) -> bool:
    known_op = ops.op(op)
    return word in problem_sets.keys(known_op) or bool(problem_sets.recorded(known_op, word))


def _of_run(registry: Registry, run: Callable[[], Any]) -> Iterator[Made]:
    """What a call runs; it takes what is built where it can, so that the compilers run together afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recorded.json"
        with settings.override(missing="best_built"), recording.record(path):
            run()
        recorded = recording.read(path)
        for op in sorted({op for op, _ in recorded}):
            yield from _of_set(registry, op, str(path), {})
