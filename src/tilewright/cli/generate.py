"""`tilewright generate`: write the sources of the kernels a request means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import selection as chosen
from tilewright.cli.common import print_json, progress, say


def register(app: typer.Typer) -> None:
    app.command(cls=chosen.WordLists)(generate)


def generate(
    op: chosen.OpName,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder for sources and manifest.")],
    target: chosen.Target = "",
    datatype: chosen.Datatypes = None,
    layout: chosen.Layouts = None,
    variants: chosen.Variants = None,
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    filter: chosen.Expression = "",
    epilogue: chosen.Epilogues = None,
    num_d: chosen.NumD = None,
    output: chosen.Outputs = None,
    limit: chosen.Limit = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Rendering processes; 0 means by cores.")] = 0,
    add: Annotated[bool, typer.Option("--add", help="Keep kernels of earlier runs in the folder.")] = False,
    why_not: chosen.WhyNot = False,
    verbose: chosen.Verbose = False,
    json: chosen.AsJson = False,
) -> None:
    """Write one source a kernel and one manifest; files that would not change are not touched."""
    from tilewright import settings
    from tilewright.codegen import MANIFEST, demand_some
    from tilewright.codegen import generate as write_sources

    selection = chosen.choose(
        op,
        target,
        pool=pool,
        preselected=preselected,
        expression=filter,
        limit=limit,
        datatypes=datatype,
        layouts=layout,
        variants=variants,
        epilogues=epilogue,
        num_d=num_d,
        outputs=output,
    )
    demand_some(selection)
    with progress("generating") as advance:
        report = write_sources(
            selection.specs, output_dir, jobs=jobs or settings.current().jobs, on_progress=advance, add=add
        )
    if json:
        data = {
            "folder": str(report.folder),
            "manifest": MANIFEST,
            "written": list(report.written),
            "unchanged": list(report.unchanged),
            "removed": list(report.removed),
            "rejected": len(selection.rejected),
            "filtered": selection.filtered,
            "processes": report.processes,
            "seconds": round(report.seconds, 3),
        }
        if why_not:
            data["why_not"] = [chosen.rejection_data(one) for one in selection.rejected]
        print_json(data)
        return
    if why_not:
        chosen.print_why_not(selection, verbose)
    if verbose:
        for name in report.written:
            typer.echo(f"written {name}")
        for name in report.removed:
            typer.echo(f"removed {name}")
    say(chosen.summary(selection))
    typer.echo(
        f"{report.folder}: {len(report.written)} written, {len(report.unchanged)} unchanged, "
        f"{len(report.removed)} removed, {report.seconds:.2f} s"
    )
