"""The `tilewright` command: finds the command modules beside it and turns errors into exit codes.

A command is a module of this package with a function `register(app)`.  Exit codes: 0 done, 1 the
request cannot be served as asked, 2 this machine lacks something, 3 a bug of ours, 130 interrupted.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright import cli, plugins
from tilewright.cli._start import EXIT_INTERRUPTED
from tilewright.cli.common import WORDS, Summaries, plain_warnings
from tilewright.errors import RequestError, TilewrightError

EXIT_CODES = {"request": 1, "machine": 2, "tilewright": 3}
_NOT_COMMANDS = ("main", "common")


# The commands by what they are for, each group in the order of the alphabet; one of no group is listed last.
GROUPS = {
    "Run and choose": ("bench", "demo", "explain", "inspect", "run"),
    "Build and ship": ("build", "bundle", "cache", "generate", "instances", "lock", "prepare", "sets", "specs", "wrap"),
    "Measure and learn": ("learn", "problems", "record", "records", "report"),
    "This machine": ("doctor", "toolchain"),
}


class ErrorsForPeople(Summaries):
    """Prints an error as its parts (rule, message, remedy) and exits with its owner's code."""

    titles = GROUPS

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **kwargs: Any) -> Any:
        words = tuple(args)
        try:
            context = super().make_context(info_name, args, *more, **kwargs)
            context.meta[WORDS] = words
            return context
        except Exception as error:
            raise _as_request(error) from error.__cause__

    def invoke(self, ctx: Any) -> Any:
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            if hasattr(error, "exit_code"):  # the parser's own: an option of a subcommand is wrong
                raise _as_request(error) from error.__cause__
            if ctx.params.get("debug"):
                raise
            code, text = _verdict(error)
        sys.stdout.flush()
        typer.echo(f"error: {text}", err=True)
        raise typer.Exit(code)


def _as_request(error: Exception) -> Exception:
    """What the parser refuses is an error of the request like any other: its form, its exit code."""
    if getattr(error, "exit_code", 0) != 2:
        return error
    helps = type(error).__name__ == "NoArgsIsHelpError"  # a command without words prints its help
    if helps or not hasattr(error, "format_message"):
        error.exit_code = EXIT_CODES["request"]  # type: ignore[attr-defined]
        return error
    message, value, context = str(error.format_message()), _refused(error), getattr(error, "ctx", None)
    if value is not None and value not in message:
        message += f" (given: {value})"
    remedy = f"`{context.command_path if context else 'tilewright'} --help` lists what it takes"
    sys.stdout.flush()
    typer.echo(f"error: {RequestError(message, rule='command-line', value=value, remedy=remedy)}", err=True)
    return typer.Exit(EXIT_CODES["request"])


def _refused(error: Exception) -> str | None:
    """The value that the parser refused, where it keeps it: newer versions of Typer leave it out of their message."""
    details = getattr(error.__cause__, "errors", None)
    first = next(iter(details()), None) if callable(details) else None
    return None if first is None else repr(first.get("input"))


def _verdict(error: Exception) -> tuple[int, str]:
    """The exit code and the text for a person."""
    if isinstance(error, TilewrightError):
        return EXIT_CODES[error.owner], str(error)
    theirs = plugins.plugin_error(error) if not isinstance(error, MemoryError) else None
    if theirs is not None:
        return EXIT_CODES[theirs.owner], str(theirs)
    if isinstance(error, OSError):
        return EXIT_CODES["machine"], f"{error}\n  remedy: fix the file or folder; --debug shows the traceback"
    if isinstance(error, MemoryError):
        detail = str(error) or "the system gives no more"
        return EXIT_CODES["machine"], (
            f"[memory] this machine has not enough memory: {detail}\n  remedy: take smaller sizes, or another machine"
        )
    return EXIT_CODES["tilewright"], (
        f"{type(error).__name__}: {error}\n  remedy: this is a bug in Tilewright; run with --debug and report the text"
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("tilewright"))
        raise typer.Exit


def _print_cmake_dir(wanted: bool) -> None:
    """Of the installed package, or of the checkout it is run from."""
    if not wanted:
        return
    package = Path(cli.__file__).parents[1]
    places = [folder / "cpp" / "cmake" for folder in (package, package.parents[1])]
    for place in places:
        if (place / "tilewright-config.cmake").is_file():
            typer.echo(place)
            raise typer.Exit
    message = f"[cmake-dir] the C++ front end is not at {places[0]}\n  remedy: install the package again"
    typer.echo(message, err=True)
    raise typer.Exit(EXIT_CODES["machine"])


def _start(
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option(
            "--cmake-dir",
            help="Print the folder of the C++ front end's CMake package and stop.",
            is_eager=True,
            callback=_print_cmake_dir,
        ),
    ] = False,
) -> None:
    """Generate, build, select and run tile kernels for GEMM, convolution and attention."""
    from tilewright import settings

    settings.current()  # read now, so that a wrong TILEWRIGHT_* variable is reported by every command alike


def build_app() -> typer.Typer:
    """The app with every command found in this package, in the order of their names."""
    app = typer.Typer(
        name="tilewright",
        cls=ErrorsForPeople,
        callback=_start,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for module_info in sorted(pkgutil.iter_modules(cli.__path__), key=lambda info: info.name):
        if module_info.name in _NOT_COMMANDS or module_info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{cli.__name__}.{module_info.name}")
        register = getattr(module, "register", None)
        if register is not None:
            register(app)
    return app


def main() -> None:
    try:
        build_app()()
    except KeyboardInterrupt:  # before or after the command itself
        typer.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
