"""`tilewright explain OP`: which kernel would serve a problem, which would not, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import problem_of, registry_for
from tilewright.cli.common import AsJson, Frozen, Lock, Rule, Strict, Target, Threads, fit, print_json


def register(app: typer.Typer) -> None:
    help = "Show which kernel serves a problem, and why."
    _ops.register(app, "explain", help, _explain, _ops.problem_parameters)


def _explain(
    op: Any,
    values: dict[str, Any],
    target: Target = "",
    threads: Threads = 0,
    strict: Strict = False,
    lock: Lock = None,
    frozen: Frozen = False,
    rule: Rule = "",
    every: Annotated[bool, typer.Option("--all", help="List every candidate with its reasons.")] = False,
    json: AsJson = False,
) -> None:
    """Explain the choice for one problem; nothing is compiled or run."""
    from tilewright.dispatch.selection_rules import demand_rule

    demand_rule(op, rule)
    with registry_for(target, threads, strict, to_run=False, lock=lock, frozen=frozen, rule=rule) as registry:
        query = problem_of(op, values, registry.arch)
        explanation = registry.explain(query.problem)
    if json:
        print_json(explanation.to_dict())
    else:
        from tilewright.dispatch import explain_text

        text = explanation.full() if every else explain_text.short(explanation, lambda line: fit(line).count("\n") + 1)
        typer.echo(fit(text))
