"""`tilewright problems`: the problem sets that ops ship, and what is in one."""

from __future__ import annotations

import json as json_text
from typing import Annotated, Any

import typer

from tilewright.cli.common import AsJson, Summaries, Target, print_json, say, show, table
from tilewright.errors import RequestError, counted, nearest


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries, no_args_is_help=True, rich_markup_mode=None, help="List problem sets, and print their problems."
    )
    group.command("ls")(ls)
    group.command("show")(show_set)
    app.add_typer(group, name="problems")


def ls(
    op: Annotated[str, typer.Argument(metavar="[OP]", help="Name of the op; default: all.", show_default=False)] = "",
    json: AsJson = False,
) -> None:
    """List problem sets with their sizes and purposes."""
    from tilewright import ops
    from tilewright.ops.engine import engine

    names = [ops.op(op).name] if op else ops.op_names()
    listed = [(name, problem_set) for name in names for problem_set in engine(ops.op(name)).problem_sets.values()]
    if json:
        print_json(
            [
                {
                    "op": name,
                    "set": problem_set.key,
                    "problems": len(problem_set),
                    "holdout": problem_set.holdout,
                    "purpose": problem_set.purpose,
                }
                for name, problem_set in listed
            ]
        )
        return
    shown = table("op", "set", "problems", "purpose", fold=["purpose"], right=["problems"])
    for name, problem_set in listed:
        shown.add_row(name, problem_set.key, str(len(problem_set)), problem_set.purpose)
    if listed:
        show(shown)
    say(f"{len(listed)} sets; random:SEED:COUNT draws others, and .json, .csv and .parquet files hold one's own")


def show_set(
    op: Annotated[str, typer.Argument(metavar="[OP]", help="Name of the op; optional if only one op has the set.")],
    which: Annotated[
        str, typer.Argument(metavar="SET", help="A set, random:SEED:COUNT, or a file.", show_default=False)
    ] = "",
    target: Target = "",
) -> None:
    """Print the problems of a set as JSON for --problems; options fill in fields that the set leaves open."""
    from tilewright import ops
    from tilewright.backends.base import resolve_target
    from tilewright.runtime import recording
    from tilewright.tune import problem_sets

    op, which = (op, which) if which else _op_of(op)
    known_op = ops.op(op)
    rows = problem_sets.values(known_op, which, resolve_target(target or None, to_run=False).backend)
    uses = problem_sets.recorded(known_op, which)
    if uses:
        typer.echo(recording.text(uses), nl=False)
        say(f"{counted(len(uses), 'problem')}, run {counted(sum(uses.values()), 'time')}")
    else:
        typer.echo(lines_of([dict(each) for each in rows]))


def _op_of(which: str) -> tuple[str, str]:
    """The op that a set is of, where no op was named."""
    from tilewright import ops
    from tilewright.tune import problem_sets

    known = ops.op_names()
    if which in known:
        raise RequestError(
            f"{which} is an op, and no set of it is named",
            rule="problem-set",
            value=which,
            remedy=nearest("", problem_sets.keys(ops.op(which))),
        )
    having = [
        name for name in known if which in problem_sets.keys(ops.op(name)) or problem_sets.recorded(ops.op(name), which)
    ]
    if len(having or known) == 1:
        return (having or known)[0], which
    raise RequestError(
        f"{which!r} may be a set of {' or '.join(having or known)}",
        rule="problem-set",
        value=which,
        remedy=f"name the op too: `tilewright problems show {(having or known)[0]} {which}`",
    )


def lines_of(rows: list[Any]) -> str:
    """A JSON list, one of them a line."""
    return "[" + ",\n ".join(map(json_text.dumps, rows)) + "]"
