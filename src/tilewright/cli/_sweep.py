"""`bench --problems`: many problems through a sweep, into the store; printed as it goes and at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tilewright.cli._ops import flag_of
from tilewright.cli._problems import demand_memory, kernel_of, problem_of
from tilewright.cli.common import print_json, say, say_noisy, share, show, table
from tilewright.errors import RequestError, StoreError, TilewrightError, UnknownNameError, counted, nearest

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.dispatch.records import Record
    from tilewright.dispatch.registry import Registry
    from tilewright.dispatch.results import Results
    from tilewright.ops.base import Op, Option
    from tilewright.tune.searching import Search
    from tilewright.tune.searching import SearchResult as Searched
    from tilewright.tune.sweep import Options, Progress, SpecsOf, Sweep, Work
    from tilewright.tune.worker_pool import WorkerPool

_SHOWN = 40  # problems that are listed; of more, see the table and the store
_PAUSE = 5.0  # seconds between two lines of progress
_WORTH_TELLING = 5.0  # seconds of waiting


@dataclass(frozen=True, slots=True)
class Which:
    """Which kernels take part: those of a pool or a trait config, one by name, of which those that pass a filter."""

    pool: str = ""
    kernel: str = ""
    expression: str = ""
    config: str = ""

    def specs_of(self, op: Op, target: str) -> SpecsOf:
        from tilewright.codegen import Filter
        from tilewright.tune.instances import load, notes, of_config
        from tilewright.tune.sweep import candidates, of_list, of_pool

        named = [f"--{name}" for name in ("pool", "kernel", "config") if getattr(self, name)]
        if len(named) > 1:
            raise RequestError(
                f"{' and '.join(named)} both choose the kernels to measure",
                rule="preselected-pool",
                value=named[0],
                remedy="leave one of them out",
            )
        specs_of: SpecsOf
        if self.config:
            data = load(op, self.config, target)
            for note in notes(op, data):
                say(f"note: {note}")
            specs_of = of_config(op, target, data)
        elif self.kernel:
            specs_of = of_list(op, [kernel_of(self.kernel, target)])
        elif self.pool:
            specs_of = of_pool(op, target, self.pool)
        else:
            specs_of = candidates(op, target)
        if not self.expression:
            return specs_of
        passes = Filter(self.expression)
        return lambda problem: [spec for spec in specs_of(problem) if passes(spec)]


@dataclass(frozen=True, slots=True)
class Kept:
    """Where results go: the store, and a table beside it."""

    store: Path | None = None
    table: Path | None = None
    save: bool = False
    schema: str = "tilewright"  # of the table
    fresh: bool = False  # the table holds this run's results only

    def demand_writable(self) -> None:
        """Before anything is measured."""
        from tilewright.tune import export

        if self.schema not in export.SCHEMAS:
            raise UnknownNameError(
                f"{self.schema!r} is no schema of tables",
                rule="table-schema",
                value=self.schema,
                remedy=nearest(self.schema, list(export.SCHEMAS)),
            )
        if self.table is None:
            if self.fresh or self.schema != "tilewright":
                option = "--fresh" if self.fresh else "--schema"
                raise RequestError(
                    f"{option} is about a table, and none is named",
                    rule="option-without-table",
                    value=option,
                    remedy="give --table FILE too, or leave it out",
                )
            return
        (export.demand_ck if self.schema == "ck" else export.demand_writable)(self.table)

    def write(self, rows: Sequence[Any]) -> None:
        from tilewright.tune import export

        if self.table is None or not rows:  # where nothing was measured there is nothing to write
            return
        if self.schema == "ck":
            export.write_ck(self.table, rows)
        else:
            export.add(self.table, rows, fresh=self.fresh)


@dataclass(slots=True)
class Summary:
    """What is said at the end."""

    unmeasured: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)  # rows
    known_failures: int = 0  # rows of the store, which are not measured again
    rows: int = 0  # written into the table


# -- which problems --------------------------------------------------------------------------------------


def problems(op: Op, word: str, values: Mapping[str, Any], arch: Arch) -> list[Any]:
    """Those a word means, each once; options that were given fill what a set does not say itself."""
    from tilewright.tune import problem_sets

    options = {option.name: option for option in op.options}
    filling = {
        name: value
        for name, value in values.items()
        if value is not None and not (options[name].kind is bool and value == (options[name].default is True))
    }

    def make(row: Mapping[str, Any]) -> Any:
        if any(name not in options for name in row):
            return op.problem_from_dict(row)  # by its own fields, which say all there is
        return problem_of(op, {**filling, **row}, arch).problem

    rows = problem_sets.values(op, word, arch.backend, make)
    for name, value in filling.items():
        written = {_written(options[name], row.get(name), arch) for row in rows if set(options).issuperset(row)}
        mine = _written(options[name], value, arch)
        if None not in written and written != {mine}:  # rows by the fields of a problem say everything
            raise RequestError(
                f"every problem of {word} says {name} itself, and {flag_of(options[name])} says another ({mine})",
                rule="problems-or-options",
                value=flag_of(options[name]),
                remedy="leave one of them out",
            )
    return list(dict.fromkeys(map(make, rows)))


def _written(option: Option, value: Any, arch: Arch) -> str | None:
    """A value in the op's own spelling; None where there is none."""
    if value is None:
        return None
    return str(option.normal(str(value), arch) if option.normal is not None and value else value)


def _servable(registry: Registry, problems: Sequence[Any], summary: Summary, *, here: bool) -> list[Any]:
    """Those that are legal on the target and fit the machine, if it is this one; why the others are not is printed."""
    servable = []
    for problem in problems:
        try:
            registry.stages(problem)
            if here:
                demand_memory(problem)
            servable.append(problem)
        except TilewrightError as error:
            summary.unmeasured.append((problem.describe(), error.message.removeprefix(f"{problem.describe()}: ")))
    return servable


# -- measuring ---------------------------------------------------------------------------------------------


def sweep(
    registry: Registry, op: Op, wanted: Sequence[Any], which: Which, how: Options, kept: Kept, *, json: bool,
    cluster: str = "", search: Search | None = None,
) -> None:  # fmt: skip
    """Measure what the store has not, or as much of it as a search has time for; print, and keep.

    On the machines of a cluster, where one is named.
    """
    from tilewright.cli import _search
    from tilewright.dispatch.records import records
    from tilewright.dispatch.results import Results
    from tilewright.tune.sweep import Sweep

    kept.demand_writable()
    summary = Summary()
    # Looked at first: what was measured for dispatch before there was a store is taken over.
    records().refresh()
    elsewhere = "name another with --store"
    store = Results(kept.store, instead=elsewhere) if kept.store is not None else records().results
    with _readable(store), _worker_pools(cluster, registry.target, how) as worker_pools:
        specs_of = which.specs_of(op, registry.target)
        servable = _servable(registry, wanted, summary, here=not cluster)
        sweeps = [Sweep(op, registry.target, store, how, worker_pool) for worker_pool in worker_pools]
        works = [(sweep, sweep.plan(servable, specs_of)) for sweep in sweeps]
        _print_work(works, store, summary)
        # Before anything is built.
        if any(work.total for _, work in works):
            store.demand_writable()
        if kept.save:
            records().demand_writable()
        searched = [] if search is None else _search.run(registry, works, search, summary)
        if search is None:
            _run(works, summary)
        chosen = [each for sweep, work in works for each in _records(registry, sweep, work)]
        if kept.save:
            _remember(works, chosen)
        if kept.table is not None:
            rows = [row for sweep, work in works for item in work.all_items for row in sweep.results(item)]
            summary.rows = len(rows)
            kept.write(rows)
    if json:
        print_json(_as_json(chosen, searched, search))
    else:
        _show(chosen)
        if search is not None:
            _search.print_results(searched, search)
    _print_summary(summary, chosen, kept)


def _as_json(records: Chosen, searched: Sequence[Searched], search: Search | None) -> list[dict[str, Any]]:
    searches = (
        {} if search is None else {result.item.problem: {"search": result.to_dict(search)} for result in searched}
    )
    return [{**record.to_dict(), **searches.get(problem, {})} for record, problem in records]


@contextmanager
def _worker_pools(cluster: str, target: str, how: Options) -> Iterator[Sequence[WorkerPool | None]]:
    """Who measures: this machine, which a sweep knows by itself, or all kinds of devices of a cluster."""
    if not cluster:
        yield [None]
        return
    from tilewright.tune.cluster import Cluster

    with Cluster(cluster, target, limit=how.limit, patience=how.patience, jobs=how.jobs) as there:
        worker_pools = there.worker_pools(say)
        for pool in worker_pools:
            threads = f", {counted(pool.threads, 'thread')}" if pool.threads else ""
            say(f"{counted(len(pool.workers), 'device')} of the cluster: {pool.machine['model']}{threads}")
        yield worker_pools


def _print_work(works: Sequence[tuple[Sweep, Work]], store: Results, summary: Summary) -> None:
    first = works[0][1]  # all have the same problems
    summary.unmeasured += [(each.describe(), "no requested kernel serves it") for each in first.unserved]
    total, known = sum(work.total for _, work in works), sum(work.known for _, work in works)
    failed: Counter[str] = Counter()
    for _, work in works:
        failed.update(work.failed)
    summary.known_failures = failed.total()
    say(f"{counted(len(first.all_items), 'problem')}: {total} to measure, {known} are in {store.path}")
    if failed:
        kinds = ", ".join(f"{count} {status}" for status, count in failed.items())
        say(f"{failed.total()} of these have no time ({kinds}); --retry measures them again")


@contextmanager
def _readable(store: Results) -> Iterator[None]:
    from tilewright.dispatch.results import Unreadable

    try:
        yield
    except Unreadable as error:
        raise StoreError(
            f"the store {store.path} cannot be used: {error}",
            rule="records-unreadable",
            value=str(store.path),
            remedy="name another with --store; nothing was written to it",
        ) from error


def _run(works: Sequence[tuple[Sweep, Work]], summary: Summary) -> None:
    from tilewright import events
    from tilewright.dispatch.results import OK
    from tilewright.tune.sweep import Progress, run_all

    now = Progress(sum(work.total for _, work in works))
    parts: dict[int, Progress] = {}  # of sweeps side by side
    line = Line()

    kernels = len({spec.digest for _, work in works for item in work.items for spec in item.specs})

    def on_build(event: Any) -> None:
        if isinstance(event, (events.KernelBuilt, events.BuildFailed)):
            now.built += 1
            line(f"built {now.built} of {max(kernels, now.built)}")

    def on_wait(share_of_cores: float) -> None:
        line(f"waiting for a quiet machine: others use {share_of_cores:.0%} of its cores")

    def on_row(row: Any, progress: Progress) -> None:
        now.done += 1
        parts[id(progress)] = progress
        if row.status != OK:
            now.failed[row.status] += 1
            summary.failures.append(row)
        line(_progress(now, parts.values()), last=now.done == now.total)

    def on_lost(text: str) -> None:
        line.end()
        say(text)

    try:
        run_all(works, on_row=on_row, on_build=on_build, on_lost=on_lost, on_wait=on_wait)
    except KeyboardInterrupt:
        line.end()
        say(f"what was measured is in {works[0][0].store.path}: the same command goes on from there")
        raise
    line.end()
    waited = sum(part.waited for part in parts.values())
    if waited > _WORTH_TELLING:
        say(f"{duration(waited)} of that were spent waiting for a quiet machine; --patience 0 does not wait")


def _progress(now: Progress, parts: Collection[Progress]) -> str:
    failed = sum(now.failed.values())
    left = max(part.seconds_left or 0.0 for part in parts)
    waited = sum(part.waited for part in parts)
    return (
        f"measured {now.done} of {now.total}"
        + (f", {failed} failed" if failed else "")
        + (f", waited {duration(waited)} for a quiet machine" if waited > _WORTH_TELLING else "")
        + (f", about {duration(left)} left" if now.done < now.total else "")
    )


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Line:
    """One line that changes on a terminal, a new one now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = 0.0 if self._terminal else time.monotonic() + _PAUSE
        self._open = False

    def __call__(self, text: str, *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next = now + (0.2 if self._terminal else _PAUSE)
        if self._terminal:
            typer.echo(f"\r\x1b[K{text}", err=True, nl=False)
            self._open = True
        else:
            say(text)

    def end(self) -> None:
        if self._open:
            typer.echo("", err=True)
            self._open = False


# -- what came of it ---------------------------------------------------------------------------------------

Chosen = list[tuple["Record", Any]]


def _records(registry: Registry, sweep: Sweep, work: Work) -> Chosen:
    """A record for each problem of which some kernel has a time."""
    records: Chosen = []
    for item in work.all_items:
        record = sweep.record(item, registry.select(item.problem, strict=False).spec.digest)
        if record is not None:
            records.append((record, item.problem))
    return records


def _remember(works: Sequence[tuple[Sweep, Work]], chosen: Chosen) -> None:
    """Choices where dispatch looks for them, with their results where those are in another store."""
    from tilewright.dispatch.records import records
    from tilewright.dispatch.results import Choice

    table = records()
    choices = [
        Choice(each.op, each.problem, each.machine, each.threads, each.target, each.choice, each.date)
        for each, _ in chosen
    ]
    here = works[0][0].store.path.absolute() == table.path.absolute()
    rows = [] if here else [row for sweep, work in works for item in work.all_items for row in sweep.results(item)]
    table.choose(rows, choices)


def _show(records: Chosen) -> None:
    numbers = ("time us", "GFLOP/s", "kernels", "spread")
    shown = table(*numbers, "problem", "winner", fold=["problem", "winner"], right=numbers)
    for record, problem in records[:_SHOWN]:
        best = record.winner
        shown.add_row(
            f"{best.seconds * 1e6:.1f}", f"{problem.flops / best.seconds / 1e9:.1f}", str(len(record.timings)),
            share(best.spread), problem.describe(), best.name,
        )  # fmt: skip
    if records:
        show(shown)
    if len(records) > _SHOWN:
        say(f"and {len(records) - _SHOWN} more problems")
    say_noisy([record.winner.spread for record, _ in records])


def _print_summary(summary: Summary, records: Chosen, kept: Kept) -> None:
    for name, why in summary.unmeasured[:_SHOWN]:
        say(f"not measured: {name}: {why}")
    if len(summary.unmeasured) > _SHOWN:
        say(f"and {len(summary.unmeasured) - _SHOWN} more that were not measured")
    by_status: dict[str, list[Any]] = {}
    for row in summary.failures:
        by_status.setdefault(row.status, []).append(row)
    for status, rows in by_status.items():
        say(f"{len(rows)} {status}: {rows[0].kernel.name}: {rows[0].reason}" + (" ..." if len(rows) > 1 else ""))
    if kept.table is not None and summary.rows:
        say(f"written to {kept.table}")
    if not records:
        raise _nothing(summary)
    say("remembered: dispatch chooses the winners from now on" if kept.save else "not remembered; use --save for that")


def _nothing(summary: Summary) -> RequestError:
    failed = len(summary.failures) + summary.known_failures
    fit = "give problems and kernels that fit each other; `tilewright explain` says which serve a problem"
    again = "fix what the reasons name, and give the same command with --retry; `tilewright report` shows all of them"
    return RequestError(
        f"nothing could be measured: {summary.unmeasured[0][1] if summary.unmeasured else f'{failed} kernels failed'}",
        rule="nothing-measured",
        value=len(summary.unmeasured) + failed,
        remedy=again if failed and not summary.unmeasured else fit,
    )
