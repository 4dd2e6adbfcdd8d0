"""`tilewright specs OP`: list the kernels a request means, without writing anything."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli import selection as chosen
from tilewright.cli.common import AsJson, Expression, Target, Verbose, print_json, say


def register(app: typer.Typer) -> None:
    _ops.register(app, "specs", "List the kernels a request means.", _specs, _ops.axis_parameters, lists=True)


def _specs(
    op: Any,
    given: dict[str, Any],
    target: Target = "",
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    filter: Expression = "",
    limit: chosen.Limit = 0,
    count: Annotated[bool, typer.Option("--count", help="Print how many there are, and no names.")] = False,
    why_not: chosen.WhyNot = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """List the specs of a pool or a preselected set, one name a line."""
    selection = chosen.choose(op, given, chosen.Wish(target, pool, preselected, filter, limit))
    if json:
        data: dict[str, Any] = {"filtered": selection.filtered, "rejected": len(selection.rejected)}
        if count:
            data["count"] = len(selection.specs)
        else:
            data["specs"] = [{"name": one.name, "digest": one.digest, "spec": one.to_dict()} for one in selection.specs]
        if why_not:
            data["why_not"] = [chosen.rejection_data(one) for one in selection.rejected]
        print_json(data)
        return
    if count:
        typer.echo(str(len(selection.specs)))
        if not selection.specs:
            say(chosen.summary(selection))
        return
    if why_not:
        chosen.print_why_not(selection, verbose)
    else:
        for spec in selection.specs:
            typer.echo(spec.name)
            if verbose:
                typer.echo(f"  {spec.to_json()}")
    say(chosen.summary(selection))
