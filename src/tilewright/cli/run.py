"""`tilewright run OP`: one problem on random data, timed and, if asked, verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import demand_memory, named_kernel, passing, problem_of, registry_for
from tilewright.cli.common import AsJson, Expression, Frozen, Kernel, Lock, Strict, Target, Threads, fit, print_json
from tilewright.errors import counted

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry


def register(app: typer.Typer) -> None:
    _ops.register(app, "run", "Run one problem on random data.", _run, _ops.problem_parameters)


def _run(
    op: Any,
    values: dict[str, Any],
    kernel: Kernel = "",
    filter: Expression = "",
    verify: Annotated[bool, typer.Option("--verify", help="Compare the result with a float64 reference.")] = False,
    repeat: Annotated[int, typer.Option(help="Number of timed runs after the first.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the random operands.", min=0)] = 0,
    target: Target = "",
    threads: Threads = 0,
    strict: Strict = False,
    lock: Lock = None,
    frozen: Frozen = False,
    json: AsJson = False,
) -> None:
    """Run one problem on random data with the kernel that dispatch selects, or with a given one."""
    from tilewright.dispatch.problem_run import run_problem

    with registry_for(target, threads, strict, lock=lock, frozen=frozen) as registry:
        query = problem_of(op, values, registry.arch)
        registry.stages(query.problem)  # an illegal problem is reported before its memory is counted
        demand_memory(query.problem)
        if filter:
            registry = _filtered(registry, query.problem, filter)
        spec = None
        if kernel:
            registry, spec = named_kernel(registry, query.problem, kernel)
        report = run_problem(
            registry, query.problem, repeat=repeat, seed=seed, verify=verify, scalars=query.scalars, spec=spec
        )
    if json:
        print_json(report)
    else:
        typer.echo(fit("\n".join(f"{label:<10}{value}" for label, value in _lines(report))))
    if report.get("ok") is False:
        raise typer.Exit(3)


def _filtered(registry: Registry, problem: Any, expression: str) -> Registry:
    """A registry of the kernels that pass, for every stage of the problem."""
    from tilewright.dispatch.registry import Registry

    narrowed = Registry(registry.target)
    for stage in registry.stages(problem):
        narrowed.add(passing(list(registry.candidates(stage)), expression, stage))
    return narrowed


def _lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("problem", report["problem"]),
        ("target", f"{report['target']}, {counted(report['threads'], 'thread')}"),
        ("kernel", report["kernel"]),
        ("tier", f"{report['tier']}: {report['reason']}"),
        ("workspace", f"{report['workspace_bytes']} bytes"),
        ("first", f"{report['first_seconds'] * 1e3:.2f} ms with selection, build and load"),
        ("time", f"{report['seconds'] * 1e6:.1f} us, {report['gflops']:.1f} GFLOP/s"),
    ]
    if "ok" in report:
        verdict = "right" if report["ok"] else f"WRONG: {report['detail']}"
        lines.append(("verify", verdict))
        lines.append(("error", f"{report['max_error']:.3g}, {report['error_over_bound']:.3f} of its bound"))
    return lines
