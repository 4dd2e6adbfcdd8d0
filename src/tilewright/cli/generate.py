"""`tilewright generate OP`: write the sources of the kernels a request means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli import selection as chosen
from tilewright.cli._archs import show_arch
from tilewright.cli.common import AsJson, Expression, Target, Verbose, print_json, progress, say

if TYPE_CHECKING:
    from tilewright.codegen import Report, SpecSet


def register(app: typer.Typer) -> None:
    _ops.register(app, "generate", "Write the sources of kernels.", _generate, _ops.axis_parameters, lists=True)


def _generate(
    op: Any,
    values: dict[str, Any],
    output_dir: Annotated[
        str, typer.Option("--output-dir", "-o", help="Folder for sources and manifest.  [required]", show_default=False)
    ] = "",
    target: Target = "",
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    config: chosen.Config = None,
    tile_config_json: chosen.ConfigText = "",
    correct: chosen.Correct = False,
    filter: Expression = "",
    limit: chosen.Limit = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Rendering processes; 0 means by cores.")] = 0,
    add: Annotated[bool, typer.Option("--add", help="Keep kernels of earlier runs in the folder.")] = False,
    why_not: chosen.WhyNot = False,
    show_arch_info: chosen.ShowArch = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Write one source file per kernel and a manifest; unchanged files are not touched."""
    from tilewright import settings
    from tilewright.codegen import demand_some
    from tilewright.codegen import generate as write_sources
    from tilewright.codegen.folder import output_folder

    if show_arch_info:
        show_arch(op, target, json)
        return
    folder = output_folder(output_dir)
    wish = chosen.Wish(target, pool, preselected, filter, limit, config, tile_config_json, correct)
    selection = chosen.choose(op, values, wish)
    demand_some(selection)
    with progress("generating") as advance:
        report = write_sources(
            selection.specs, folder, jobs=jobs or settings.current().jobs, on_progress=advance, add=add
        )
    if json:
        print_json(_data(report, selection, why_not))
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


def _data(report: Report, selection: SpecSet, why_not: bool) -> dict[str, Any]:
    from tilewright.codegen import MANIFEST

    data: dict[str, Any] = {
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
        data["why_not"] = [chosen.rejection_data(rejection) for rejection in selection.rejected]
    if selection.corrected:
        data["corrected"] = [chosen.correction_data(correction) for correction in selection.corrected]
    return data
