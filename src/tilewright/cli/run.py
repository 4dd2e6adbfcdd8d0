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
    from tilewright.dispatch.rehearse import run_problem

    with options.settings() as registry:
        scalars = {"alpha": options.alpha, "beta": options.beta}
        report = run_problem(registry, options.problem(), repeat=repeat, seed=seed, verify=verify, scalars=scalars)
    if json:
        print_json(report)
    else:
        for label, value in _lines(report):
            console().print(f"{label:<10}{value}")
    if report.get("ok") is False:
        raise typer.Exit(3)


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
