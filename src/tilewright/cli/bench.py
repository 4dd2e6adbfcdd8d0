"""`tilewright bench OP`: kernels against each other on problems; the winners can be remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import demand_memory, kernel_of, named_kernel, problem_of, registry_for, table_of
from tilewright.cli._search import search_of
from tilewright.cli.common import (
    AsJson,
    Expression,
    Kernel,
    Strict,
    Target,
    Threads,
    print_json,
    progress,
    say,
    say_noisy,
    share,
    show,
    table,
)
from tilewright.errors import RequestError, counted

if TYPE_CHECKING:
    from tilewright.cli._sweep import Which
    from tilewright.dispatch.records import Record
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import KernelSpec, Op

Problems = Annotated[
    str,
    typer.Option("--problems", metavar="SET|FILE", help="A problem set (`tilewright problems ls`), random:SEED:COUNT, "
                 "or a .json, .csv or .parquet file instead of one problem."),
]  # fmt: skip
Workers = Annotated[
    int, typer.Option("--jobs", "-j", "--workers", min=0, help="Parallel compile jobs; 0 means by cores and memory.")
]
# An op may have an option --output of its own: see `table_of`.
Table = Annotated[
    Path | None,
    typer.Option(
        "--table", "--output", "--csv", metavar="FILE", help="With --problems: write results as .csv or .parquet."
    ),
]
Schema = Annotated[
    str,
    typer.Option(metavar="tilewright|ck", help="Columns of the table: ours, or those of CK Tile's tile engine."),
]
StoreFile = Annotated[
    Path | None, typer.Option("--store", metavar="FILE", help="With --problems: store results in this file.")
]
OnCluster = Annotated[
    str, typer.Option("--cluster", metavar="HOST:PORT", help="With --problems: build and measure on a Ray cluster.")
]
_ROUNDS = 10_000  # more take longer than a kernel may, which would be blamed for it
_DAY = 86_400.0  # seconds: what is larger is no limit, and no clock's


def register(app: typer.Typer) -> None:
    _ops.register(
        app, "bench", "Time the kernels that serve a problem, and record the fastest.", _bench, _ops.problem_parameters
    )


def _stages(registry: Registry, op: Op, problem: Any, split_plans: bool) -> list[Any]:
    """The stages of the plan in use, or of every split plan."""
    stages = registry.stages(problem)  # an illegal problem is reported first
    if not split_plans:
        return list(stages)
    plans = op.split_plans(problem, registry.target)
    return list(dict.fromkeys(stage for stages in plans.values() for stage in stages))


def _bench(
    op: Any,
    values: dict[str, Any],
    problems: Problems = "",
    save: Annotated[bool, typer.Option("--save", help="Record the winners; dispatch then selects them.")] = False,
    pool: Annotated[str, typer.Option(help="Measure the kernels of this pool instead of the default ones.")] = "",
    config: Annotated[
        str, typer.Option(metavar="CONFIG", help="With --problems: measure the kernels of a trait config.")
    ] = "",
    kernel: Kernel = "",
    filter: Expression = "",
    rounds: Annotated[
        int, typer.Option(help="Interleaved rounds; 0 means 9, or 5 with --problems.", min=0, max=_ROUNDS)
    ] = 0,
    flush: Annotated[bool, typer.Option("--flush", help="Flush the caches before every call.")] = False,
    split_plans: Annotated[
        bool, typer.Option("--split-plans", help="Measure every split plan of a problem (numbers of KV splits).")
    ] = False,
    table: Table = None,
    schema: Schema = "tilewright",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace the table's rows; by default new results are added to it.")
    ] = False,
    store: StoreFile = None,
    limit: Annotated[
        float, typer.Option(help="With --problems: time limit of a kernel, in seconds.", min=0.1, max=_DAY)
    ] = 30.0,
    batch_size: Annotated[int, typer.Option(help="With --problems: kernels per worker batch.", min=1)] = 20,
    patience: Annotated[
        float, typer.Option(help="With --problems: longest wait for an idle machine, in seconds.", min=0, max=_DAY)
    ] = 5.0,
    retry: Annotated[
        bool, typer.Option("--retry", help="With --problems: measure again what failed (crash, timeout, build, ...).")
    ] = False,
    jobs: Workers = 0,
    search: Annotated[
        str, typer.Option(metavar="STRATEGY", help="Search strategy: random, evolve, model or halving.")
    ] = "",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time budget of a search over all problems: 120s, 5m, 1h.")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Random seed of a search.", min=0)] = None,
    cluster: OnCluster = "",
    target: Target = "",
    threads: Threads = 0,
    strict: Strict = False,
    json: AsJson = False,
) -> None:
    """Build, check and time every kernel that serves a problem, or each of a set of problems.

    A set is measured in worker processes, and every result is kept in the store as soon as it is known: the same
    command goes on where it was interrupted.  Of a pool too large for that, --search measures what promises most.
    """
    from tilewright.cli._sweep import Kept, Which

    wanted, which = search_of(search, budget, seed), Which(pool, kernel, filter, config)
    if problems or wanted:
        from tilewright.tune.searching import ROUNDS

        how = {
            "search": wanted, "rounds": rounds or ROUNDS.get(search, 5), "flush": flush, "limit": limit,
            "batch": batch_size, "patience": patience, "split_plans": split_plans, "retry": retry,
        }  # fmt: skip
        kept = Kept(store, table or table_of(values), save, schema, fresh)
        with registry_for(target, threads, strict, to_run=not cluster) as registry:
            _sweep(
                registry, op, problems, values, which, {**how, "jobs": jobs}, kept, json,
                cluster,
            )  # fmt: skip
        return
    named = schema if schema != "tilewright" else ""
    _demand_set(
        output=table_of(values), table=table, schema=named, fresh=fresh, store=store, config=config, cluster=cluster,
        retry=retry,
    )  # fmt: skip
    measured: list[Record] = []
    with registry_for(target, threads, strict) as registry:
        problem = problem_of(op, values, registry.arch).problem
        rounds = rounds or 9
        if save:
            _demand_store()
        stages = _stages(registry, op, problem, split_plans)
        how = {"rounds": rounds, "flush": flush, "save": save, "max_workers": jobs or None}
        for record, stage in _measured(registry, op, problem, stages, which, how):
            measured.append(record)
            if not json:
                _show(record, stage)
    if json:
        data = [record.to_dict() for record in measured]
        print_json(data[0] if len(data) == 1 else data)
    elif measured:
        say("* the winner: the first in order of preference that is no slower than the fastest, noise taken off")
        say("remembered: dispatch chooses the winners from now on" if save else "not remembered; use --save for that")


def _sweep(
    registry: Registry, op: Op, word: str, values: dict[str, Any], which: Any, how: dict[str, Any], kept: Any,
    json: bool, cluster: str,
) -> None:  # fmt: skip
    from tilewright.cli import _sweep as sweeps
    from tilewright.runtime.timing import Method
    from tilewright.tune.sweep import Options

    if which.kernel:  # a name says its arch itself
        from tilewright.backends.base import demand_runnable
        from tilewright.dispatch.registry import default_registry

        spec = kernel_of(which.kernel, registry.target)
        if spec.arch != registry.target:
            if not cluster:
                demand_runnable(spec.arch)
            registry = default_registry(spec.arch)
    search = how.pop("search")
    method = Method(rounds=how.pop("rounds"), flush=how.pop("flush"))
    options = Options(method=method, **{**how, "jobs": how["jobs"] or None})
    wanted = (
        sweeps.problems(op, word, values, registry.arch) if word else [problem_of(op, values, registry.arch).problem]
    )
    sweeps.sweep(registry, op, wanted, which, options, kept, json=json, cluster=cluster, search=search)


def _demand_set(**options: Path | str | bool | None) -> None:
    for name, value in options.items():
        if value:
            raise RequestError(
                f"--{name} is for sets of problems",
                rule="option-without-set",
                value=f"--{name}",
                remedy="give --problems too, or leave it out",
            )


def _demand_store() -> None:
    """Where nothing can be remembered, that is said before anything is built."""
    from tilewright.dispatch.records import records

    records().demand_writable()


def _measured(
    registry: Registry, op: Op, problem: Any, stages: list[Any], which: Which, how: dict[str, Any]
) -> Iterator[tuple[Record, Any]]:
    """A record for each stage of the problem; `how` are options of `Registry.measure`."""
    from tilewright import events

    demand_memory(problem)
    named: KernelSpec | None = None
    if which.kernel:
        registry, named = named_kernel(registry, problem, which.kernel)
    specs_of = which.specs_of(op, registry.target)
    for stage in stages:
        if named is not None and named.signature != op.signature_of(stage):
            continue  # the kernel is of another stage
        specs = [named] if named is not None else list(specs_of(stage))
        if not specs and which.expression:
            raise _nothing_passes(which, stage)
        timed = op.measured_as(stage)
        serving = [spec for spec in specs if not op.supports(spec, timed)]  # the others are not built
        with progress("build") as advance, events.recorded() as heard:
            record = registry.measure(stage, specs, on_event=_counting(advance, len(serving)), **how)
        for event in heard:
            if isinstance(event, events.Warned) and event.rule == "wrong-result":
                say(f"left out, its result is wrong: {event.message}")
        yield record, stage


def _nothing_passes(which: Which, problem: Any) -> RequestError:
    """Of one problem, a filter that leaves nothing is taken for a mistake."""
    return RequestError(
        f"none of the kernels for {problem.describe()} passes the filter",
        rule="no-specs",
        value=which.expression,
        remedy="widen the filter",
    )


def _counting(advance: Callable[[int, int], None], total: int) -> Callable[[Any], None]:
    from tilewright import events

    done = 0

    def heard(event: Any) -> None:
        nonlocal done
        if isinstance(event, (events.KernelBuilt, events.BuildFailed)):
            done += 1
            advance(done, max(done, total))

    return heard


def _show(record: Record, problem: Any) -> None:
    numbers = ("time us", "GFLOP/s", "spread", "error/bound", "of best")
    title = f"{problem.describe()} on {record.target}, {counted(record.threads, 'thread')}"
    shown = table("", *numbers, "kernel", fold=["kernel"], right=numbers, title=title)
    best = record.timings[0].seconds
    for timing in record.timings:
        shown.add_row(
            "*" if timing.digest == record.choice else "",
            f"{timing.seconds * 1e6:.1f}",
            f"{problem.flops / timing.seconds / 1e9:.1f}",
            share(timing.spread),
            f"{timing.error:.3f}",
            f"{best / timing.seconds:.2f}",
            timing.name,
        )
    show(shown)
    say_noisy([record.winner.spread])
