"""`tilewright inspect`: what is inside a built kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.common import print_json


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="A kernel's name or digest, a library, or a code object.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show registers, memory, occupancy, code size and the instructions that matter.

    A kernel that is not in the store is built.  Where the spec promises matrix instructions and the
    code holds none, that is an error after the findings.
    """
    from tilewright.build.inspected import inspect_kernel
    from tilewright.inspect import demand_promises

    found = inspect_kernel(kernel)
    if json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
    demand_promises(found)
