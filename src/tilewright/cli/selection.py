"""Which specs are meant: the options shared by `specs`, `generate` and `build`, and how they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli._ops import axis_values
from tilewright.cli.common import say, show, table

if TYPE_CHECKING:
    from tilewright.codegen import Rejection, SpecSet
    from tilewright.ops.base import Op

Pool = Annotated[str, typer.Option("--pool", help="A pool of the op.  [default: default]", show_default=False)]
Preselected = Annotated[str, typer.Option("--preselected", help="A named set instead of a pool.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="At most so many specs; 0 means all.")]
WhyNot = Annotated[bool, typer.Option("--why-not", help="List the rejected proposals by rule; with -v each of them.")]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options ask for."""

    target: str = ""
    pool: str = ""
    preselected: str = ""
    expression: str = ""
    limit: int = 0


def choose(op: Op, given: dict[str, Any], wish: Wish) -> SpecSet:
    """The specs the options mean; an axis nobody gave is left to the op's default."""
    from tilewright.backends.base import resolve_target
    from tilewright.codegen import collect

    return collect(
        op.name,
        resolve_target(wish.target or None, to_run=False).name,
        pool=wish.pool,
        preselected=wish.preselected,
        expression=wish.expression,
        limit=wish.limit,
        axes=axis_values(op, given),
    )


def rejection_data(rejection: Rejection) -> dict[str, Any]:
    return {
        "name": rejection.spec.name,
        "spec": rejection.spec.to_dict(),
        "violations": [
            {"rule": one.rule, "message": one.message, "remedy": one.remedy} for one in rejection.violations
        ],
    }


def print_why_not(selection: SpecSet, verbose: bool) -> None:
    """Each rule that refused something with its count and one sentence; every proposal when verbose."""
    if not selection.rejected:
        say("no proposal was rejected")
        return
    told = ("for example", "what would work")
    shown = table("rejected", "rule", *told, fold=told, right=["rejected"], title=f"{len(selection.rejected)} rejected")
    for rule, (count, example) in selection.rejections_by_rule().items():
        shown.add_row(str(count), rule, example.message, example.remedy)
    show(shown)
    if verbose:
        for rejection in selection.rejected:
            typer.echo(rejection.spec.name)
            for violation in rejection.violations:
                typer.echo(f"  {violation}")


def summary(selection: SpecSet) -> str:
    parts = [f"{len(selection.specs)} specs"]
    if selection.rejected:
        parts.append(f"{len(selection.rejected)} proposals rejected (--why-not lists them)")
    if selection.filtered:
        parts.append(f"{selection.filtered} filtered out")
    if len(parts) == 1 and not selection.specs:
        parts.append("nothing was proposed")
    return ", ".join(parts)
