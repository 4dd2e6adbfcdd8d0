"""`tilewright specs`: list the kernels a request means, without writing anything."""

from __future__ import annotations

import typer

from tilewright.cli import selection as chosen
from tilewright.cli.common import print_json, say


def register(app: typer.Typer) -> None:
    app.command(cls=chosen.WordLists)(specs)


def specs(
    op: chosen.OpName,
    target: chosen.Target = "",
    datatype: chosen.Datatypes = None,
    layout: chosen.Layouts = None,
    variants: chosen.Variants = None,
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    filter: chosen.Expression = "",
    epilogue: chosen.Epilogues = None,
    num_d: chosen.NumD = None,
    output: chosen.Outputs = None,
    limit: chosen.Limit = 0,
    why_not: chosen.WhyNot = False,
    verbose: chosen.Verbose = False,
    json: chosen.AsJson = False,
) -> None:
    """List the specs of a pool or a preselected set, one name a line."""
    selection = chosen.choose(
        op,
        target,
        pool=pool,
        preselected=preselected,
        expression=filter,
        limit=limit,
        datatypes=datatype,
        layouts=layout,
        variants=variants,
        epilogues=epilogue,
        num_d=num_d,
        outputs=output,
    )
    if json:
        data = {
            "specs": [{"name": one.name, "digest": one.digest, "spec": one.to_dict()} for one in selection.specs],
            "filtered": selection.filtered,
            "rejected": len(selection.rejected),
        }
        if why_not:
            data["why_not"] = [chosen.rejection_data(one) for one in selection.rejected]
        print_json(data)
        return
    if why_not:
        chosen.print_why_not(selection, verbose)
    else:
        for spec in selection.specs:
            typer.echo(spec.name)
            if verbose:
                typer.echo(f"  {spec.to_json()}")
    say(chosen.summary(selection))
