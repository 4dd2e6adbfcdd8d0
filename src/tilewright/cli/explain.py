"""`tilewright explain OP`: which kernel would serve a problem, which would not, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli._gemm_options import GemmOptions, takes_gemm
from tilewright.cli.common import console, print_json


def _explain_gemm(
    options: GemmOptions, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Explain the choice for one GEMM; nothing is compiled or run."""
    with options.settings() as registry:
        explanation = registry.explain(options.problem())
    if json:
        print_json(explanation.to_dict())
    else:
        console().print(str(explanation))


def register(app: typer.Typer) -> None:
    commands = typer.Typer(no_args_is_help=True, help="Say which kernel serves a problem, and why.")
    commands.command("gemm")(takes_gemm(_explain_gemm))
    app.add_typer(commands, name="explain")
