"""What several commands share: targets, consoles, JSON output and progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from tilewright.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.arch import Arch

Advance = Callable[[int, int], None]  # called with (done, total)


def console() -> Console:
    """Where results go.  Names and numbers are printed as they are: no wrapping off a terminal."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 10_000
    return Console(file=sys.stdout, width=wide, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """One line about what happens, on stderr: stdout belongs to the results."""
    typer.echo(text, err=True)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, sort_keys=True))


def resolve_target(name: str) -> Arch:
    """The arch asked for, else the setting's, else the best one of this machine."""
    from tilewright import settings
    from tilewright.arch import arch, best_host_arch

    name = name or settings.current().target
    return arch(name) if name else best_host_arch()


def words(values: Sequence[str] | None) -> tuple[str, ...]:
    """An option given several times, or once with commas, as one tuple without repeats."""
    found = [word.strip() for value in values or () for word in value.split(",")]
    return tuple(dict.fromkeys(word for word in found if word))


def numbers(option: str, values: Sequence[str] | None) -> tuple[int, ...]:
    found = words(values)
    for word in found:
        if not word.isdecimal():
            raise RequestError(
                f"{option} {word!r} is not a whole number", rule="option-value", value=word, remedy=f"{option} 0,1,2"
            )
    return tuple(int(word) for word in found)


@contextmanager
def progress(label: str) -> Iterator[Advance]:
    """A bar on a terminal, a line at each quarter elsewhere; the body calls the answer with (done, total)."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
        ) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    said = 0

    def plain(done: int, total: int) -> None:
        nonlocal said
        quarter = 4 * done // total if total else 4
        if quarter > said:
            said = quarter
            say(f"{label}: {done} of {total}")

    yield plain
