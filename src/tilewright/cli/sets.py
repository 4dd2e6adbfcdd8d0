"""`tilewright sets`: the preselected sets of the ops, and how many kernels each has on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import AsJson, Target, print_json, say, show, table
from tilewright.errors import counted

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.ops.base import Op


def register(app: typer.Typer) -> None:
    app.command()(sets)


def sets(
    op: Annotated[str, typer.Argument(metavar="[OP]", help="Name of the op; default: all.", show_default=False)] = "",
    target: Target = "",
    json: AsJson = False,
) -> None:
    """List the preselected sets for a target, with their purpose and number of kernels."""
    from tilewright import ops
    from tilewright.backends.base import resolve_target

    arch = resolve_target(target or None, to_run=False)
    chosen = [ops.op(op)] if op else list(ops.all_ops().values())
    rows = [row for op in chosen for row in _rows(op, arch)]
    if json:
        print_json({"target": arch.name, "sets": rows})
        return
    if rows:
        shown = table("op", "set", "kernels", "for", fold=["for"], right=["kernels"])
        for row in rows:
            shown.add_row(row["op"], row["name"], str(row["kernels"]), row["purpose"])
        show(shown)
    others: dict[str, int] = {}
    for each in chosen:
        for preselected in each.preselected_sets.values():
            if preselected.family != arch.family:
                others[preselected.family] = others.get(preselected.family, 0) + 1
    more = "".join(f"; {count} are for {family}{_such_as(family)}" for family, count in others.items())
    say(f"{counted(len(rows), 'set')} for {arch.name}{more}")


def _rows(op: Op, arch: Arch) -> list[dict[str, Any]]:
    """The sets of the target's family; those of others have no kernels there."""
    from tilewright.codegen import collect

    return [
        {
            "op": op.name,
            "name": name,
            "kernels": len(collect(op.name, arch.name, preselected=name).specs),
            "purpose": preselected.purpose,
        }
        for name, preselected in op.preselected_sets.items()
        if preselected.family == arch.family
    ]


def _such_as(family: str) -> str:
    from tilewright.arch import all_archs

    backends = [arch.backend for arch in all_archs().values() if arch.family == family]
    return f" (--target {backends[0]})" if backends else ""
