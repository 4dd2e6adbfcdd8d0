"""`tilewright run OP`: one problem on random data, timed and, if asked, verified."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilewright.cli._gemm_options import GemmOptions, takes_gemm
from tilewright.cli.common import console, print_json


def _run_gemm(
    options: GemmOptions,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the float64 reference.")] = False,
    repeat: Annotated[int, typer.Option(help="Timed runs after the first.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the random operands.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one GEMM on random data with the kernel dispatch chooses."""
    with options.settings() as registry:
        report = run_problem(registry, options.problem(), repeat, seed, verify, alpha=options.alpha, beta=options.beta)
    if json:
        print_json(report)
    else:
        for label, value in _lines(report):
            console().print(f"{label:<10}{value}")
    if report.get("ok") is False:
        raise typer.Exit(3)


class _Watched:
    """A registry with plans of its own, so that the choice made for a call can be seen."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._plans: dict[Any, Any] = {}
        self.chosen: Any = None

    def plans(self) -> dict[Any, Any]:
        return self._plans

    def plan(self, *request: Any, **options: Any) -> Any:
        prepared = self._registry.plan(*request, **options)
        self.chosen = prepared.selection
        return prepared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


def run_problem(registry: Any, problem: Any, repeat: int, seed: int, verify: bool, **scalars: float) -> dict[str, Any]:
    """Run a problem through dispatch; what happened as plain data."""
    import statistics

    from tilewright.runtime.bindings import binding
    from tilewright.runtime.devices import device_of
    from tilewright.runtime.host import clock, thread_count

    registry.candidates(problem)  # an illegal problem is an error before memory is taken for it
    bound = binding(problem.op)
    device = device_of(registry.target)
    operands = {**bound.operands(problem, seed, device, exact=True), **scalars}
    watched = _Watched(registry)
    started = clock()
    positions, keywords = bound.call_arguments(watched, problem, operands)
    bound.run(watched, *positions, **keywords)
    device.synchronize()
    first = clock() - started
    times = []
    for _ in range(repeat):
        started = clock()
        bound.run(watched, *positions, **keywords)
        device.synchronize()  # what is timed is the call and its work
        times.append(clock() - started)
    seconds = statistics.median(times)
    report: dict[str, Any] = {
        "problem": problem.describe(),
        "target": registry.target,
        "threads": thread_count(),
        "kernel": watched.chosen.name,
        "tier": watched.chosen.tier,
        "reason": watched.chosen.reason,
        "first_seconds": first,
        "seconds": seconds,
        "gflops": problem.flops / seconds / 1e9,
    }
    if verify:
        bound.poison(operands)
        bound.run(watched, *positions, **keywords)
        check = bound.check(problem, operands)
        report |= {
            "ok": check.ok,
            "max_error": check.max_error,
            "error_over_bound": check.bound_ratio,
            "detail": check.detail,
        }
    return report


def _lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("problem", report["problem"]),
        ("target", f"{report['target']}, {report['threads']} thread(s)"),
        ("kernel", report["kernel"]),
        ("tier", f"{report['tier']}: {report['reason']}"),
        ("first", f"{report['first_seconds'] * 1e3:.2f} ms with selection, build and load"),
        ("time", f"{report['seconds'] * 1e6:.1f} us, {report['gflops']:.1f} GFLOP/s"),
    ]
    if "ok" in report:
        verdict = "right" if report["ok"] else f"WRONG: {report['detail']}"
        lines.append(("verify", verdict))
        lines.append(("error", f"{report['max_error']:.3g}, {report['error_over_bound']:.3f} of its bound"))
    return lines


def register(app: typer.Typer) -> None:
    commands = typer.Typer(no_args_is_help=True, help="Run one problem on random data.")
    commands.command("gemm")(takes_gemm(_run_gemm))
    app.add_typer(commands, name="run")
