"""`tilewright wrap`: wrappers and build files for a person's own build of generated kernels."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.common import AsJson, Verbose, print_json, say

if TYPE_CHECKING:
    from tilewright.codegen.wrap import WrapReport

_SHOWN = 10  # kernels that are named before the rest is counted


def register(app: typer.Typer) -> None:
    app.command()(wrap)


def wrap(
    kernel_dir: Annotated[str, typer.Option("--kernel-dir", help="Folder that `tilewright generate` wrote.")],
    output_dir: Annotated[str, typer.Option("--output-dir", "-o", help="Folder for wrappers and build files.")],
    pattern: Annotated[
        str, typer.Option("--pattern", help='File names of kernels to include, such as "*.hpp".  [default: all]')
    ] = "",
    generate_cmake: Annotated[bool, typer.Option("--generate-cmake", help="Write a CMakeLists.txt.")] = False,
    generate_ninja: Annotated[bool, typer.Option("--generate-ninja", help="Write a build.ninja.")] = False,
    generate_makefile: Annotated[bool, typer.Option("--generate-makefile", help="Write a Makefile.")] = False,
    offload_compress: Annotated[
        bool, typer.Option("--offload-compress", help="Compress device code in the library (AMD GPUs).")
    ] = False,
    parallel: Annotated[bool, typer.Option("--parallel", help="Write with several threads.")] = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Write build files (CMake, Ninja, Make) that compile generated kernels into one library, `dispatcher_kernels`."""
    from tilewright.codegen.folder import output_folder
    from tilewright.codegen.wrap import wrap as write_wrappers

    wanted = {"cmake": generate_cmake, "ninja": generate_ninja, "make": generate_makefile}
    report = write_wrappers(
        output_folder(kernel_dir, "--kernel-dir"),
        output_folder(output_dir),
        pattern=pattern,
        build_systems=[name for name, on in wanted.items() if on],
        parallel=parallel,
        offload_compress=offload_compress,
    )
    for note in report.notes:
        say(f"note: {note}", whole=True)
    for name, why in report.left_out[:_SHOWN]:
        say(f"left out {name!r}: {why}")
    if len(report.left_out) > _SHOWN:
        say(f"left out {len(report.left_out) - _SHOWN} more; --json lists them")
    if json:
        print_json(
            {
                "folder": str(report.folder),
                "written": list(report.written),
                "unchanged": list(report.unchanged),
                "removed": list(report.removed),
                "build_files": dict(report.build_files),
                "left_out": dict(report.left_out),
                "ignored": dict(report.ignored),
                "archs": list(report.archs),
                "notes": list(report.notes),
            }
        )
        return
    if verbose:
        for name in report.written:
            typer.echo(f"written {name}")
        for name in report.removed:
            typer.echo(f"removed {name}")
        for name, why in report.ignored:
            say(f"ignored {name}: {why}")
    typer.echo(
        f"{report.folder}: {len(report.written)} written, {len(report.unchanged)} unchanged, "
        f"{len(report.removed)} removed"
    )
    for name, written in report.build_files.items():
        typer.echo(f"{report.folder / name}: {'written' if written else 'unchanged'}")
    if report.build_systems:
        _say_how_to_build(report)


def _say_how_to_build(report: WrapReport) -> None:
    """Commands with as many compilers at once as cores and memory allow: a kernel may take gigabytes to compile."""
    from tilewright import settings
    from tilewright.build.jobs import job_limit
    from tilewright.codegen.build_files import HOW_TO_BUILD

    kernels = len(report.written) + len(report.unchanged)
    limit = job_limit(kernels, report.compile_memory, setting=settings.current().jobs)
    for name in report.build_systems:
        how = HOW_TO_BUILD[name].format(place=shlex.quote(str(report.folder)), jobs=limit.jobs)
        say(f"build: {how}", whole=True)
    say(f"{limit.jobs} at once: {limit.reason}")
