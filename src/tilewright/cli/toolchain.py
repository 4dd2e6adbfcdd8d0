"""`tilewright toolchain`: cross-compilers under the user's cache: install, list, verify, remove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.common import Summaries, console, print_json, say

if TYPE_CHECKING:
    from tilewright.toolchains.install import Sources
    from tilewright.toolchains.installed import Installed

_Prefix = Annotated[
    Path | None, typer.Option("--prefix", help="Installation folder; default: one in the cache folder.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Name = Annotated[str, typer.Argument(help="Name of the toolchain: rocm.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Manage cross-compilers: install, list, verify, remove.",
    )
    group.command("install")(install)
    group.command("list")(list_)
    group.command("verify")(verify)
    group.command("remove")(remove)
    app.add_typer(group, name="toolchain")


class _Lines:
    """Steps as lines on stderr; on a terminal the running step counts up."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._live = sys.stderr.isatty()
        self._title = ""
        self._shown_percent = -1
        self._notes: list[str] = []

    def step(self, title: str) -> None:
        self.end()
        self._title, self._shown_percent = title, -1
        typer.echo(title, err=True, nl=not self._live)

    def advance(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if percent == self._shown_percent:
            return
        if self._live:
            self._shown_percent = percent
            typer.echo(f"\r{self._title}  {percent} %", err=True, nl=False)
        elif percent // 25 > self._shown_percent // 25:
            self._shown_percent = percent
            say(f"  {percent} %")

    def note(self, text: str) -> None:
        self._notes.append(text)

    def end(self) -> None:
        if self._live and self._title:
            typer.echo("", err=True)
        self._title = ""

    def print_notes(self) -> None:
        """All of them with -v, else the first few: an archive that moved on can have dozens."""
        self.end()
        shown = self._notes if self._verbose else self._notes[:3]
        for note in shown:
            say(f"note: {note}")
        if len(shown) < len(self._notes):
            say(f"note: {len(self._notes) - len(shown)} more like these; -v shows them")


def _known(name: str) -> None:
    from tilewright.errors import UnknownNameError, nearest
    from tilewright.toolchains.installed import NAMES

    if name not in NAMES:
        raise UnknownNameError(
            f"{name!r} is not a toolchain", rule="toolchain-name", value=name, remedy=nearest(name, list(NAMES))
        )


def install(
    name: _Name = "rocm",
    prefix: _Prefix = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before downloading.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an installed toolchain.")] = False,
    if_possible: Annotated[
        bool, typer.Option("--if-possible", help="Succeed without network or Debian archive, installing nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every package.")] = False,
) -> None:
    """Set up a cross-compiler for AMD GPUs, without root, from the archive apt is configured for."""
    from tilewright.errors import ToolchainError
    from tilewright.toolchains import installed
    from tilewright.toolchains.install import OUTSIDE_CAUSES, install_rocm

    _known(name)
    progress = _Lines(verbose)

    def confirm(sources: Sources) -> bool:
        progress.print_notes()
        plan = sources.plan
        say(f"ROCm {plan.rocm} (clang {plan.llvm}), CK Tile headers of {sources.headers.name}")
        if verbose:
            for package in plan.packages:
                say(f"  {package.name} {package.version} ({package.suite})")
        size = f"{sources.download_bytes >> 20} MiB to fetch, at most {plan.installed_bytes >> 20} MiB on disk"
        if yes or not sys.stdin.isatty():
            say(size)
            return True
        return typer.confirm(f"{size}; go on?", default=True, err=True)

    try:
        toolchain, new = install_rocm(prefix, force=force, progress=progress, confirm=confirm)
    except ToolchainError as error:
        if not if_possible or error.rule not in OUTSIDE_CAUSES:
            raise
        progress.end()
        say(f"not installed: {error.message}")
        return
    finally:
        progress.end()
    size = f"{toolchain.manifest['bytes'] >> 20} MiB in {toolchain.manifest['seconds']} s"
    say(f"installed: {size}" if new else "already installed; --force replaces it")
    if prefix is not None and toolchain.prefix != installed.default_prefix(name):
        say(f"to use it: TILEWRIGHT_ROCM_PATH={toolchain.prefix}")
    typer.echo(str(toolchain.prefix))


def _swept() -> None:
    """Clear away what a killed installation left, and say so."""
    from tilewright.toolchains import staging

    freed = staging.sweep()
    if freed:
        say(f"removed {freed >> 20} MiB that an installation left when it was killed")


def _summary(toolchain: Installed) -> str:
    kind = "as tested" if toolchain.manifest["tested"] else "newer than tested"
    return (
        f"ROCm {toolchain.version}, clang {toolchain.manifest['llvm']}, {toolchain.manifest['bytes'] >> 20} MiB, {kind}"
    )


def list_(json: _Json = False) -> None:
    """Show the toolchains that are installed."""
    from tilewright.toolchains.installed import all_installed

    _swept()
    toolchains = all_installed()
    if json:
        print_json([{"prefix": str(toolchain.prefix), **toolchain.manifest} for toolchain in toolchains])
        return
    for toolchain in toolchains:
        console().print(
            f"{toolchain.name}  {toolchain.prefix}  {_summary(toolchain)}", soft_wrap=True
        )  # a path stays whole
    if not toolchains:
        say("none is installed; `tilewright toolchain install rocm` sets one up")


def _at(name: str, prefix: Path | None) -> Path:
    from tilewright.toolchains.installed import default_prefix

    _known(name)
    return prefix.expanduser().absolute() if prefix is not None else default_prefix(name)


def verify(name: _Name = "rocm", prefix: _Prefix = None) -> None:
    """Compare the files of the one in force with their digests, compile a small program; exit code 2 if it is wrong."""
    from tilewright.errors import RequestError, ToolchainError
    from tilewright.toolchains import installed
    from tilewright.toolchains.install import self_check

    _swept()
    place = _at(name, prefix) if prefix is not None else installed.in_force(name)
    _known(name)
    toolchain = installed.read(place)
    if toolchain is None:
        there = (place / "bin" / "hipcc").is_file()
        raise RequestError(
            f"{place} has a compiler that `tilewright toolchain install` did not set up: there is no list of its files"
            if there
            else f"there is no toolchain in {place}",
            rule="no-toolchain",
            value=str(place),
            remedy="`tilewright doctor` says whether it works; --prefix names another toolchain"
            if there
            else "tilewright toolchain install rocm",
        )
    progress = _Lines(verbose=False)
    progress.step("comparing the files")
    problems = installed.verify(toolchain, progress.advance)
    progress.end()
    if problems:
        for problem in problems[:10]:
            say(f"  {problem}")
        raise ToolchainError(
            f"{len(problems)} files of {place} are not as they were installed",
            rule="toolchain-damaged",
            value=str(place),
            remedy="tilewright toolchain install rocm --force",
        )
    say(f"a small program compiles in {self_check(toolchain.prefix):.1f} s")
    typer.echo(f"{place}: {_summary(toolchain)}, complete")


def remove(name: _Name = "rocm", prefix: _Prefix = None) -> None:
    """Delete an installed toolchain."""
    from tilewright.toolchains import installed

    _swept()
    place = _at(name, prefix)
    installed.remove(place)
    typer.echo(f"removed {place}")
