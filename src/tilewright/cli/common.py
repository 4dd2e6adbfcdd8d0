"""What several commands share: options, tables, JSON output and progress."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import typer.core

from tilewright.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Advance = Callable[[int, int], None]  # called with (done, total)

# Options that several commands have.


def not_empty(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """An option with nothing in it is a script's variable that nobody set, not an option that was left out."""
    source = context.get_parameter_source(option.name or "")
    if value == "" and source is not None and source.name == "COMMANDLINE":
        raise RequestError(
            f"{option.opts[0]} is empty", rule="option-empty", value="", remedy="give a value, or leave the option out"
        )
    return value


WORDS = "tilewright.words"  # of the command line, in the context's notes


def one_target(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """A target under several of its names, or several times, must be the same one: none of them wins in silence."""
    words = [str(word) for word in context.meta.get(WORDS, ())]
    words = words[: words.index("--")] if "--" in words else words
    targets = [after for word, after in pairwise(words) if word in option.opts]
    targets += [word.partition("=")[2] for word in words if "=" in word and word.partition("=")[0] in option.opts]
    if len(set(targets)) > 1:
        raise RequestError(
            f"the target is named {len(targets)} times: {', '.join(dict.fromkeys(targets))}",
            rule="target-twice",
            value=targets[-1],
            remedy=f"give one of them ({', '.join(option.opts)} are the same option)",
        )
    return not_empty(context, option, value)


Target = Annotated[
    str,
    typer.Option(
        "--target",
        "--gpu-target",
        "--arch",
        callback=one_target,
        help="Arch or backend; default: the best one of this machine.",
    ),
]
Threads = Annotated[int, typer.Option("--threads", min=0, help="Threads of a CPU kernel; 0 means every core.")]
Lock = Annotated[
    Path | None,
    typer.Option("--lock", metavar="FILE", help="Use the kernels pinned in a lock file (`tilewright lock`)."),
]
Frozen = Annotated[bool, typer.Option("--frozen", help="Refuse unpinned problems, and compile nothing.")]
Rule = Annotated[
    str, typer.Option("--rule", metavar="NAME", help="Select by a rule of the op instead of records and estimates.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse the padded and the fallback tier.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=0, help="Parallel compile jobs; 0 means by cores and memory.")]
Kernel = Annotated[
    str, typer.Option("--kernel", metavar="NAME|DIGEST", help="Use this kernel instead of the selected one.")
]
Expression = Annotated[
    str, typer.Option("--filter", help="Keep kernels c that match, such as \"c.arch == 'generic'\".")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


WIDE = 10_000  # where nobody says how wide a line may be, nothing is folded


def console() -> Console:
    """Where results go, as wide as the terminal (or COLUMNS) says."""
    from rich.console import Console

    width = shutil.get_terminal_size((WIDE, 25)).columns
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)


def table(*columns: str, fold: Sequence[str] = (), right: Sequence[str] = (), title: str = "") -> Table:
    """A table whose numbers and keys are always whole: only the columns of `fold` give way on a narrow screen.

    Those come last, and what is too long for them goes on below.
    """
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, title=title or None, title_justify="left", padding=(0, 2, 0, 0))
    for name in columns:
        folds = name in fold
        side: Literal["left", "right"] = "right" if name in right else "left"
        shown.add_column(name, overflow="fold", no_wrap=not folds, justify=side)
    return shown


NARROW = 110  # columns; on less, a table with two long columns folds them into crumbs


def narrow() -> bool:
    return shutil.get_terminal_size((WIDE, 25)).columns < NARROW


def short_name(name: str, room: int = 32) -> str:
    """A kernel's name whole, or on a narrow screen its beginning and its digest: commands take the digest for it."""
    if len(name) <= room or not narrow():
        return name
    return f"{name[: room - 9]}\u2026{name[-8:]}"


def share(value: float | None) -> str:
    """A share for a table; what is not known is a dash."""
    return "-" if value is None else f"{value * 100:.1f}%"


NOISY = 0.2  # a spread that says that something else ran meanwhile


def say_noisy(spreads: Sequence[float | None]) -> None:
    """Say of how many winners the times differ so much that another may be the fastest."""
    odd = [spread for spread in spreads if spread is not None and spread > NOISY]
    if odd:
        say(
            f"{len(odd)} of {len(spreads)} winners are uncertain: their rounds differ by up to {share(max(odd))}; "
            "measure again on a quiet machine"
        )


def show(table: Table) -> None:
    """Print a table without the blanks that fill its lines."""
    out = console()
    with out.capture() as captured:
        out.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


_LABEL = re.compile(r" *(?:\S+(?: \d+)? {2,})?")  # "kernel    ", "stage 1   ", or the blanks before a line


def fit(text: str) -> str:
    """A text whose lines fit the terminal: the rest goes on below, under where the value began.

    Words stay whole: one that is too long for that place, a name or a path, has a line of its own.
    """
    width = shutil.get_terminal_size((WIDE, 25)).columns
    return "\n".join(part for line in text.split("\n") for part in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    match = _LABEL.match(line)
    label = match.group() if match else ""
    # A command that is copied must stay one.
    more = " \\" if label.startswith("replay ") else ""
    hang = " " * (len(label) if label.strip() else len(label) + 2)
    lead = len(label) - len(label.lstrip())
    lines, start = [label], len(label)
    for word in line[len(label) :].split(" "):
        last = lines[-1]
        empty = len(last) <= start
        if empty and len(last) + len(word) <= width:
            lines[-1] = last + word
        elif not empty and len(last) + 1 + len(word) + len(more) <= width:
            lines[-1] = f"{last} {word}"
        else:
            lines[-1] = f"{last.rstrip()}{more}"
            start = max(lead + 2, min(len(hang), width - len(word)))
            lines.append(" " * start + word)
    return [line.rstrip() for line in lines if line.strip()]


def demand_values(command: Any, words: Sequence[str]) -> None:
    """Raise where an option that takes a value is followed by another option, which would be read as its value."""
    options = {name: param for param in command.params for name in param.opts if name.startswith("-")}
    rest = iter(words[: words.index("--")] if "--" in words else words)
    for word in rest:
        if not word.startswith("-") and not command.allow_interspersed_args:
            return  # the words of another program
        option = options.get(word)
        if option is None or getattr(option, "is_flag", False) or getattr(option, "count", False):
            continue
        following = next(rest, None)
        if following in options:
            meaning = str(getattr(option, "help", "")).rstrip(".")
            raise RequestError(
                f"{word} takes a value, and the option {following} follows it",
                rule="option-value",
                value=word,
                remedy=f"write the value after {word} ({meaning}), or leave it out",
            )


class Summaries(typer.core.TyperGroup):
    """A group of commands whose help lists them under titles, with summaries that are never cut."""

    titles: Mapping[str, Sequence[str]] = MappingProxyType({})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not isinstance(command, typer.core.TyperGroup):
            demand_values(command, rest)
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        left = dict.fromkeys(self.list_commands(ctx))
        groups = {title: [name for name in names if name in left] for title, names in self.titles.items()}
        groups["More" if groups else "Commands"] = [
            name for name in left if not any(name in group for group in groups.values())
        ]
        for title, names in groups.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                (name, command.get_short_help_str(WIDE))
                for name, command in commands
                if command is not None and not command.hidden
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def say(text: str, *, whole: bool = False) -> None:
    """What happens, on stderr: stdout belongs to the results.  `whole`: a command to be copied stays one line."""
    typer.echo(text if whole else fit(text), err=True)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Within, a warning of Python's is one line for a person, said once, without the place in the code."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("default", ".* is now called ", DeprecationWarning)  # old names (`renames`)
        warnings.showwarning = show
        yield


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, sort_keys=True))


def words(values: Sequence[str] | None) -> tuple[str, ...]:
    """An option given several times, or once with commas, as one tuple without repeats."""
    split = [word.strip() for value in values or () for word in value.split(",")]
    return tuple(dict.fromkeys(word for word in split if word))


def numbers(option: str, values: Sequence[str] | None) -> tuple[int, ...]:
    texts = words(values)
    for word in texts:
        if not word.isdecimal():
            raise RequestError(
                f"{option} {word!r} is not a whole number", rule="option-value", value=word, remedy=f"{option} 0,1,2"
            )
    return tuple(int(word) for word in texts)


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
    shown = 0

    def plain(done: int, total: int) -> None:
        nonlocal shown
        quarter = 4 * done // total if total else 4
        if quarter > shown:
            shown = quarter
            say(f"{label}: {done} of {total}")

    yield plain
