"""`tilewright bench OP`: kernels against each other on problems; the winners can be remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import demand_memory, named_kernel, passing, problems_of, registry_for
from tilewright.cli.common import (
    AsJson,
    Expression,
    Jobs,
    Kernel,
    Strict,
    Target,
    Threads,
    print_json,
    progress,
    say,
    show,
    table,
)

if TYPE_CHECKING:
    from tilewright.dispatch.records import Record
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import KernelSpec, Op

Problems = Annotated[
    Path | None, typer.Option("--problems", metavar="FILE", help="A JSON list of problems instead of one.")
]


def register(app: typer.Typer) -> None:
    _ops.register(app, "bench", "Time kernels against each other.", _bench, _ops.problem_parameters)


@dataclass(frozen=True, slots=True)
class Field:
    """Which kernels take part: those of a pool, one by name, those that pass a filter; else the op's candidates."""

    pool: str
    kernel: str
    expression: str

    def specs(self, registry: Registry, op: Op, problem: Any) -> list[KernelSpec]:
        found = _pool(registry, op, problem, self.pool) if self.pool else list(registry.candidates(problem))
        return passing(found, self.expression, problem) if self.expression else found


def _bench(
    op: Any,
    given: dict[str, Any],
    problems: Problems = None,
    save: Annotated[bool, typer.Option("--save", help="Remember the winners: dispatch will choose them.")] = False,
    pool: Annotated[str, typer.Option(help="Measure the kernels of this pool instead of the default ones.")] = "",
    kernel: Kernel = "",
    filter: Expression = "",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 9,
    jobs: Jobs = 0,
    target: Target = "",
    threads: Threads = 0,
    strict: Strict = False,
    json: AsJson = False,
) -> None:
    """Build, check and time every kernel that serves a problem, or each of a list of problems."""
    from tilewright.errors import TilewrightError

    field = Field(pool, kernel, filter)
    found: list[Record] = []
    failed: list[tuple[str, TilewrightError]] = []
    with registry_for(target, threads, strict) as registry:
        for problem in [one.problem for one in problems_of(op, given, problems, registry.arch)]:
            try:
                for record, stage in _measured(registry, op, problem, field, rounds=rounds, save=save, jobs=jobs):
                    found.append(record)
                    if not json:
                        _show(record, stage)
            except TilewrightError as error:
                if problems is None:
                    raise
                failed.append((problem.describe(), error))
    if json:
        data = [one.to_dict() for one in found]
        print_json(data[0] if problems is None and len(data) == 1 else data)
    for name, why in failed:
        say(f"not measured: {name}: {why.message}")
    if found and not json:
        say("* the winner: the first in order of preference that is no slower than the fastest, noise taken off")
        say("remembered: dispatch chooses the winners from now on" if save else "not remembered; use --save for that")
    if failed:
        raise failed[0][1]


def _measured(
    registry: Registry, op: Op, problem: Any, field: Field, *, rounds: int, save: bool, jobs: int
) -> Iterator[tuple[Record, Any]]:
    """A record for each stage of the problem."""
    from tilewright import events

    stages = registry.stages(problem)  # an illegal problem is told before its memory is counted
    demand_memory(problem)
    named: KernelSpec | None = None
    if field.kernel:
        registry, named = named_kernel(registry, problem, field.kernel)
    for stage in stages:
        if named is not None and named.signature != op.signature_of(stage):
            continue  # the kernel is of another stage
        specs = [named] if named is not None else field.specs(registry, op, stage)
        timed = op.measured_as(stage)
        serving = [one for one in specs if not op.supports(one, timed)]  # the others are not built
        with progress("build") as advance, events.recorded() as heard:
            record = registry.measure(
                stage,
                specs,
                rounds=rounds,
                save=save,
                max_workers=jobs or None,
                on_event=_counting(advance, len(serving)),
            )
        for one in heard:
            if isinstance(one, events.Warned) and one.rule == "wrong-result":
                say(f"left out, its result is wrong: {one.message}")
        yield record, stage


def _counting(advance: Callable[[int, int], None], total: int) -> Callable[[Any], None]:
    from tilewright import events

    done = 0

    def heard(event: Any) -> None:
        nonlocal done
        if isinstance(event, (events.KernelBuilt, events.BuildFailed)):
            done += 1
            advance(done, max(done, total))

    return heard


def _pool(registry: Registry, op: Op, problem: Any, name: str) -> list[KernelSpec]:
    """The pool's kernels with exactly the problem's signature."""
    signature = op.signature_of(problem)
    proposed = op.proposals(name, registry.target, **op.axes_of(signature))
    return [spec for spec in proposed if spec.signature == signature and not op.check(spec)]


def _show(record: Record, problem: Any) -> None:
    numbers = ("time us", "GFLOP/s", "spread", "error/bound", "of best")
    title = f"{problem.describe()} on {record.target}, {record.threads} thread(s)"
    shown = table("", *numbers, "kernel", fold=["kernel"], right=numbers, title=title)
    best = record.timings[0].seconds
    for one in record.timings:
        shown.add_row(
            "*" if one.digest == record.choice else "",
            f"{one.seconds * 1e6:.1f}",
            f"{problem.flops / one.seconds / 1e9:.1f}",
            f"{one.spread * 100:.1f}%",
            f"{one.error:.3f}",
            f"{best / one.seconds:.2f}",
            one.name,
        )
    show(shown)
