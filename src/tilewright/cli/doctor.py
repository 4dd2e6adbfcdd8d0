"""`tilewright doctor`: what this machine can do, and why not."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.common import AsJson


def register(app: typer.Typer) -> None:
    app.command("doctor")(_doctor)


def _doctor(
    everything: Annotated[
        bool, typer.Option("--all", help="List every setting and version, defaults included.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check this machine: targets, compilers, devices, store, settings, versions, and that a kernel builds and loads.

    The exit code is 0 when kernels for this CPU can be compiled, stored and loaded, else 2.
    """
    from tilewright.cli._doctor import examine

    if not examine(json, everything):
        raise typer.Exit(2)
