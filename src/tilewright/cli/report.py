"""`tilewright report`: one page about what was measured, for a browser without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.common import AsJson, not_empty, print_json, say
from tilewright.errors import RequestError

OUTPUT = "tilewright-report.html"


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Stores (.db) and tables (.csv, .parquet); by default this machine's store.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", callback=not_empty, help="Output file.")
    ] = Path(OUTPUT),
    op: Annotated[str, typer.Option("--op", callback=not_empty, help="Include only this op.")] = "",
    target: Annotated[
        str, typer.Option("--target", callback=not_empty, help="Include only this arch.")
    ] = "",
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="MODEL", help="Model whose predictions are shown, a file or a shipped one; "
                     "default: those that dispatch uses.", show_default=False),
    ] = None,
    predictions: Annotated[
        bool, typer.Option("--predictions/--no-predictions", help="Show estimates and predictions beside measurements.")
    ] = True,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "Measured kernels",
    json: AsJson = False,
) -> None:  # fmt: skip
    """Write one HTML page: leaderboard, heat map, roofline, kernel against kernel, predictions, regret, failures."""
    from tilewright.cli.learn import model_of
    from tilewright.codegen.folder import write_if_changed
    from tilewright.dispatch import model_files
    from tilewright.dispatch.records import records
    from tilewright.report import page
    from tilewright.report import sources as reading

    _demand_ours(output)
    source = reading.read(sources or [_own(records().path)], op=op, arch=target)
    models = tuple(map(model_of, model)) if model else model_files.at_hand() if predictions else ()
    text = page.page(source, page.Wanted(title, models, predictions))
    write_if_changed(output, text.encode())
    summary = {"path": str(output), "rows": len(source.results), "bytes": len(text)}
    if json:
        print_json(summary)
    else:
        say(f"{summary['rows']} rows, {len(text) / 1e6:.1f} MB written to {output}: open it in a browser")


def _own(path: Path) -> Path:
    if not path.exists():
        raise RequestError(
            f"nothing was measured on this machine yet: there is no {path}",
            rule="report-empty",
            value=str(path),
            remedy="measure some: `tilewright bench OP --problems validation`, or name stores and tables",
        )
    return path


def _demand_ours(path: Path) -> None:
    """Said before anything is read: what is there and is no page of ours is left alone."""
    from tilewright.codegen.folder import demand_replaceable
    from tilewright.report.page import MARK

    if path.suffix not in (".html", ".htm"):
        raise RequestError(
            f"{path.name!r} is no name of a page", rule="report-name", value=str(path), remedy="end it in .html"
        )
    if not path.parent.is_dir():
        raise RequestError(
            f"{path.parent} is no folder", rule="report-folder", value=str(path.parent),
            remedy="make it, or name another",
        )  # fmt: skip
    demand_replaceable(path, MARK.encode())
