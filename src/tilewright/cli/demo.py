"""`tilewright demo`: the whole path on a small kernel set: declare, generate, build, choose, run, verify."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import AsJson, Jobs, Target, print_json, progress, say, short_name, show, table
from tilewright.errors import RequestError

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import Op
    from tilewright.ops.demo import Demo


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    problem: str
    kernel: str
    tier: str
    seconds: float
    gflops: float
    max_error: float
    error_over_bound: float
    ok: bool
    rival_ratio: float | None  # the rival's time over ours


def register(app: typer.Typer) -> None:
    app.command("demo")(_demo)


def _shown(names: list[str]) -> list[tuple[Op, Demo]]:
    """The ops that have something to show."""
    from tilewright import ops

    # Of all of them, an op that is broken is left out; `tilewright doctor` says what is wrong with it.
    asked = [ops.op(name) for name in names] if names else ops.all_ops().values()
    found = [(one, getattr(one, "demo", None)) for one in asked]
    for one, demo in found:
        if demo is None and names:
            raise RequestError(
                f"the op {one.name} has no demo", rule="no-demo", value=one.name, remedy="name another op, or none"
            )
    return [(one, demo) for one, demo in found if demo is not None]


def _demo(
    op: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="The ops to show; all by default.")] = None,
    target: Target = "",
    jobs: Jobs = 0,
    repeat: Annotated[int, typer.Option(help="Timed runs of each problem.", min=1)] = 9,
    json: AsJson = False,
) -> None:
    """Declare a small kernel set, build it in parallel, run and verify a handful of problems."""
    from tilewright.arch import host_facts
    from tilewright.runtime.host import clock, thread_count

    shown = _shown(list(op or []))
    registry = _kernel_set(shown, target)
    say(f"declared {len(registry)} kernels for {registry.target}")
    start = clock()
    with progress("generate and compile") as advance:
        registry.build(max_workers=jobs or None, progress=advance)
    say(f"built in {clock() - start:.1f} s (what the store had was not compiled again)")
    rows = _run(registry, shown, repeat)
    if json:
        from tilewright.ops.base import plain

        print_json({"target": registry.target, "threads": thread_count(), "rows": plain(rows)})
    else:
        rivals = " and ".join(dict.fromkeys(demo.rival for _, demo in shown if demo.rival))
        _show(rows, f"{host_facts().model}, {thread_count()} thread(s), {registry.target}", rivals)
    wrong = sum(not row.ok for row in rows)
    say(f"{len(rows) - wrong} of {len(rows)} problems verified against the float64 reference")
    if wrong:
        raise typer.Exit(3)


def _kernel_set(shown: list[tuple[Op, Demo]], target: str) -> Registry:
    from tilewright.backends.base import resolve_target
    from tilewright.dispatch.registry import Registry

    registry = Registry(resolve_target(target or None).name)
    for op, demo in shown:
        for pool, axes in demo.pools:
            registry.add_pool(op.name, pool, **axes)
    return registry


def _run(registry: Registry, shown: list[tuple[Op, Demo]], repeat: int) -> list[Row]:
    rows: list[Row] = []
    total = sum(len(demo.problems) for _, demo in shown)
    with progress("run and verify") as advance:
        for op, demo in shown:
            for values in demo.problems:
                rows.append(_row(registry, op.problem(values), demo, repeat))
                advance(len(rows), total)
    return rows


def _row(registry: Registry, problem: Any, demo: Demo, repeat: int) -> Row:
    from tilewright.dispatch.rehearse import run_problem

    report = run_problem(registry, problem, repeat=repeat, seed=1, verify=True)
    rival = _seconds(demo.rival_call(problem), repeat) if demo.rival_call is not None else None
    return Row(
        problem=report["problem"],
        kernel=report["kernel"],
        tier=report["tier"],
        seconds=report["seconds"],
        gflops=report["gflops"],
        max_error=report["max_error"],
        error_over_bound=report["error_over_bound"],
        ok=report["ok"],
        rival_ratio=None if rival is None else rival / report["seconds"],
    )


def _seconds(call: Any, repeat: int) -> float:
    from tilewright.runtime.host import clock

    times = []
    for _ in range(repeat + 1):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times[1:])


def _show(rows: list[Row], title: str, rivals: str) -> None:
    numbers = ["time us", "GFLOP/s", "of bound", *(["speedup"] if rivals else [])]
    shown = table(*numbers, "tier", "problem", "kernel", fold=["problem", "kernel"], right=numbers, title=title)
    for row in rows:
        cells = [
            f"{row.seconds * 1e6:.1f}",
            f"{row.gflops:.1f}",
            f"{row.error_over_bound:.3f}" if row.ok else "WRONG",
        ]
        if rivals:
            cells.append("" if row.rival_ratio is None else f"{row.rival_ratio:.2f}")
        shown.add_row(*cells, row.tier, row.problem, short_name(row.kernel))
    show(shown)
    if rivals:
        say(f"speedup: the time of {rivals} over ours; of bound: the largest error as a part of what is allowed")
