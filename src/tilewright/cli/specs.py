"""`tilewright specs OP`: list the kernels a request means, without writing anything."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli import selection as chosen
from tilewright.cli._archs import show_arch
from tilewright.cli.common import AsJson, Expression, Target, Verbose, print_json, say

if TYPE_CHECKING:
    from tilewright.codegen import SpecSet


def register(app: typer.Typer) -> None:
    _ops.register(
        app,
        "specs",
        "List the kernels of a pool, a preselected set or a configuration.",
        _specs,
        _ops.axis_parameters,
        lists=True,
    )


def _specs(
    op: Any,
    values: dict[str, Any],
    target: Target = "",
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    config: chosen.Config = None,
    tile_config_json: chosen.ConfigText = "",
    correct: chosen.Correct = False,
    filter: Expression = "",
    limit: chosen.Limit = 0,
    count: Annotated[bool, typer.Option("--count", help="Print the number of specs instead of their names.")] = False,
    why_not: chosen.WhyNot = False,
    show_arch_info: chosen.ShowArch = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """List the specs of a pool, a preselected set or a configuration, one name per line; an empty list is an error."""
    from tilewright.codegen import demand_some

    if show_arch_info:
        show_arch(op, target, json)
        return
    wish = chosen.Wish(target, pool, preselected, filter, limit, config, tile_config_json, correct)
    if count and not why_not:
        number = chosen.count(op, values, wish)
        if number.specs:  # of none the reasons are wanted
            if json:
                print_json({"filtered": number.filtered, "rejected": number.rejected, "count": number.specs})
            else:
                typer.echo(str(number.specs))
            return
    selection = chosen.choose(op, values, wish)
    _print_specs(selection, count=count, why_not=why_not, verbose=verbose, json=json)
    demand_some(selection)


def _print_specs(selection: SpecSet, *, count: bool, why_not: bool, verbose: bool, json: bool) -> None:
    if json:
        data: dict[str, Any] = {"filtered": selection.filtered, "rejected": len(selection.rejected)}
        if count:
            data["count"] = len(selection.specs)
        else:
            data["specs"] = [
                {"name": spec.name, "digest": spec.digest, "spec": spec.shown()} for spec in selection.specs
            ]
        if why_not:
            data["why_not"] = [chosen.rejection_data(rejection) for rejection in selection.rejected]
        if selection.corrected:
            data["corrected"] = [chosen.correction_data(correction) for correction in selection.corrected]
        print_json(data)
        return
    if count:
        typer.echo(str(len(selection.specs)))
        return
    if why_not:
        chosen.print_why_not(selection, verbose)
    else:
        for spec in selection.specs:
            typer.echo(spec.name)
            if verbose:
                typer.echo(f"  {json_text.dumps(spec.shown(), sort_keys=True)}")
    if selection.specs:
        say(chosen.summary(selection))
