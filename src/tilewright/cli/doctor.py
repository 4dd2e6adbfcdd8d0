"""`tilewright doctor`: what this machine can do, and why not."""

from __future__ import annotations

import typer

from tilewright.cli.common import AsJson


def register(app: typer.Typer) -> None:
    app.command("doctor")(_doctor)


def _doctor(json: AsJson = False) -> None:
    """Say what this machine can do: compilers, targets, versions, the store, the settings in force.

    The exit code is 0 when kernels for this CPU can be compiled, stored and loaded, else 2.
    """
    from tilewright.cli._doctor import examine

    if not examine(json):
        raise typer.Exit(2)
