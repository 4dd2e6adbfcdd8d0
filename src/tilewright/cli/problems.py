"""`tilewright problems`: the problem sets that ops ship, and what is in one."""

from __future__ import annotations

import json as json_text
from typing import Annotated, Any

import typer

from tilewright.cli.common import AsJson, Target, print_json, say, show, table


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Problem sets: which there are, what is in.")
    group.command("ls")(ls)
    group.command("show")(show_set)
    app.add_typer(group, name="problems")


def ls(
    op: Annotated[str, typer.Argument(metavar="[OP]", help="An op; by default all.", show_default=False)] = "",
    json: AsJson = False,
) -> None:
    """List problem sets with their sizes and purposes."""
    from tilewright import ops
    from tilewright.ops.engine import engine

    names = [ops.op(op).name] if op else ops.op_names()
    found = [(name, one) for name in names for one in engine(ops.op(name)).problem_sets.values()]
    if json:
        print_json(
            [
                {"op": name, "set": one.key, "problems": len(one), "holdout": one.holdout, "purpose": one.purpose}
                for name, one in found
            ]
        )
        return
    shown = table("op", "set", "problems", "purpose", fold=["purpose"], right=["problems"])
    for name, one in found:
        shown.add_row(name, one.key, str(len(one)), one.purpose)
    if found:
        show(shown)
    say(f"{len(found)} sets; random:SEED:COUNT draws others, and .json, .csv and .parquet files hold one's own")


def show_set(
    op: Annotated[str, typer.Argument(metavar="OP", help="An op.")],
    which: Annotated[str, typer.Argument(metavar="SET", help="A set, random:SEED:COUNT, or a file.")],
    target: Target = "",
) -> None:
    """Print the problems of a set as JSON that --problems reads; what it leaves out is for options to say."""
    from tilewright import ops
    from tilewright.backends.base import resolve_target
    from tilewright.tune import problem_sets

    found = problem_sets.values(ops.op(op), which, resolve_target(target or None, to_run=False).backend)
    typer.echo(lines_of([dict(one) for one in found]))


def lines_of(rows: list[Any]) -> str:
    """A JSON list, one of them a line."""
    return "[" + ",\n ".join(map(json_text.dumps, rows)) + "]"
