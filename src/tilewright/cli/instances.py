"""`tilewright instances OP CONFIG`: the kernels a trait config means."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli import selection as chosen
from tilewright.cli.common import Expression, Target, Verbose, say
from tilewright.errors import RequestError

if TYPE_CHECKING:
    from tilewright.codegen import SpecSet

_Config = Annotated[
    str,
    typer.Argument(
        metavar="[CONFIG]", help="JSON file, or a shipped config: cpu, cuda, hip, ...  [default: the target's]",
        show_default=False,
    ),
]  # fmt: skip


def register(app: typer.Typer) -> None:
    help = "List the kernels of a trait config; before a file the op may be left out."
    _ops.register(app, "instances", help, _instances, _ops.axis_parameters, op_of=_op_of)


def _op_of(words: Sequence[str]) -> str:
    """The op of the first file that is no value of an option."""
    from tilewright.tune import instances

    for before, word in zip(("", *words), words, strict=False):
        if word.endswith(".json") and before != "--export-json":
            return instances.op_of(word)
    return ""


def _instances(
    op: Any,
    values: dict[str, Any],
    config: _Config = "",
    target: Target = "",
    filter: Expression = "",
    count_only: Annotated[bool, typer.Option("--count-only", help="Print the number of kernels.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Print the names of kernels (default).")] = False,
    export_json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the specs to a JSON file.")] = None,
    why_not: chosen.WhyNot = False,
    verbose: Verbose = False,
) -> None:
    """Expand a trait config through a pool's kernels and legality; none at all is an error.

    Options for axes fill those that the config does not name; one that says otherwise than it does is an error.
    """
    from tilewright.backends.base import resolve_target
    from tilewright.codegen import demand_some
    from tilewright.tune import instances

    name = resolve_target(target or None, to_run=False).name
    data = instances.load(op, config, name)
    axes = _ops.axis_values(op, values)
    instances.demand_agreement(op, data, axes)
    for note in instances.notes(op, data):
        say(f"note: {note}")
    expanded = instances.expand(op, data, name, axes=axes, expression=filter)
    if why_not:
        chosen.print_why_not(expanded, verbose)
    elif count_only:
        typer.echo(str(len(expanded.specs)))
    elif listing or export_json is None:
        for spec in expanded.specs:
            typer.echo(spec.name)
    demand_some(expanded)
    if export_json is not None:
        _export(export_json, expanded)
    say(chosen.summary(expanded))


def _export(path: Path, selection: SpecSet) -> None:
    """A new file, or one of this command's own."""
    from tilewright import jsontext
    from tilewright.codegen.folder import write_if_changed

    try:
        there = jsontext.loads(jsontext.read(path)) if path.exists() else {"instances": []}
    except (OSError, ValueError):
        there = None
    if not isinstance(there, dict) or set(there) != {"instances"}:
        raise RequestError(
            f"{path} is there already, and holds something else",
            rule="foreign-file",
            value=str(path),
            remedy="name a new file",
        )
    rows = [{"name": spec.name, "digest": spec.digest, "spec": spec.shown()} for spec in selection.specs]
    write_if_changed(path, (json_text.dumps({"instances": rows}, indent=1) + "\n").encode())
    say(f"written to {path}")
