"""`tilewright inspect`: what is inside a built kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.common import AsJson, Target, fit, print_json
from tilewright.errors import RequestError


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="Kernel name or digest, a file of `specs --json`, a library, or a code object."
        ),
    ],
    source: Annotated[bool, typer.Option("--source", help="Print the generated source; nothing is built.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="Print the disassembly.")] = False,
    target: Target = "",
    json: AsJson = False,
) -> None:
    """Show registers, memory, occupancy, code size and key instructions of a built kernel.

    A kernel that is not in the store is built.  Where the spec promises matrix instructions and the
    code holds none, that is an error after the findings.  Of AMD kernels it shows a model of the main loop (clocks by
    unit, not measured), and checks that every register a load or a matrix instruction writes is waited for.
    """
    from tilewright.build import inspected
    from tilewright.inspect import demand_promises, demand_waits

    if source + asm + json > 1:
        raise RequestError(
            "--source, --asm and --json are three answers", rule="option-value", value=kernel, remedy="ask for one"
        )
    if source:
        texts = inspected.sources(kernel, target)
        typer.echo("\n".join(texts), nl=False)
        return
    if asm:
        for text in inspected.listings(kernel, target):
            typer.echo(text.rstrip("\n"))
        return
    inspections = inspected.inspect_all(kernel, target)
    if json:
        data = [inspection.to_dict() for inspection in inspections]
        print_json(data[0] if len(data) == 1 else data)
    else:
        typer.echo(fit("\n\n".join(str(inspection) for inspection in inspections)))
    for inspection in inspections:
        demand_waits(demand_promises(inspection))
