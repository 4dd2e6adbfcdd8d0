"""`tilewright prepare OP`: the fewest kernels that serve future problems, built ahead."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli.common import AsJson, Jobs, Target, Threads, fit, print_json, progress

if TYPE_CHECKING:
    from tilewright.ops.base import Op

Problems = Annotated[
    str,
    typer.Option(
        "--problems",
        metavar="SET|FILE",
        help="A problem set, random:SEED:COUNT, or a JSON, CSV or Parquet file, such as `tilewright record` writes.",
    ),
]
Loss = Annotated[
    float, typer.Option("--loss", min=0.0, max=9.0, help="Most time to lose by a kernel that is not the best.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which kernels these are, and build nothing.")]


def register(app: typer.Typer) -> None:
    help = "Build the fewest kernels that serve a range of problems."
    _ops.register(app, "prepare", help, _prepare, _range_parameters, op_of=_op_of)


def _op_of(words: Sequence[str]) -> str:
    """The first op that a recording is of, where none is named; the command then takes all of its ops."""
    from tilewright import ops
    from tilewright.tune import problem_sets

    words_given = [after for word, after in itertools.pairwise(words) if word == "--problems"]
    words_given += [word.partition("=")[2] for word in words if word.startswith("--problems=")]
    having = [op for word in words_given for op in ops.op_names() if problem_sets.recorded(ops.op(op), word)]
    return having[0] if having else ""


def _range_parameters(op: Op) -> list[inspect.Parameter]:
    """The options of a problem, as texts where they are numbers: 4096, 1..8192, or 8..512..8 with a step."""
    parameters = []
    for parameter in _ops.problem_parameters(op):
        kind, option = parameter.annotation.__origin__, parameter.annotation.__metadata__[0]
        if kind == (int | None):
            parameter = parameter.replace(annotation=Annotated[str | None, option])
        parameters.append(parameter)
    return parameters


def _prepare(
    op: Any,
    values: dict[str, Any],
    problems: Problems = "",
    loss: Loss = 0.03,
    jobs: Jobs = 0,
    target: Target = "",
    threads: Threads = 0,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Build the fewest kernels that serve every problem of a range, or of a file, within a loss.

    A number may be a range: --m 1..8192, --n 8..512..8 with a step, --batch 1,8,64 for these; sizes too: --size
    7..224x7..224.  With TILEWRIGHT_MISSING=best_built a program then compiles nothing for such problems.
    """
    from tilewright.tune.prepare import prepare

    options = {option.name: _value(option, values[option.name]) for option in op.options if _is_set(option, values)}
    what: tuple[Any, ...] = (op.name,)
    if problems and not options and _recorded_of_several(problems):
        what, problems = (Path(problems),), ""
    with progress("prepare") as advance:
        report = prepare(
            *what,
            loss=loss,
            problems=problems or None,
            target=target or None,
            threads=threads,
            jobs=jobs,
            build=not dry_run,
            load=False,
            progress=advance,
            **options,
        )
    if json:
        print_json(report.to_dict())
    else:
        typer.echo(fit(str(report)))


def _is_set(option: Any, values: dict[str, Any]) -> bool:
    value = values[option.name]
    return value is not None and not option.scalar and not (option.kind is bool and value == (option.default is True))


def _value(option: Any, value: Any) -> Any:
    """A number as one, or a range, or a list."""
    if option.kind is not int:
        return value
    words = [word.strip() for word in value.split(",")]
    if all(word.lstrip("-").isdecimal() for word in words):
        return int(words[0]) if len(words) == 1 else [int(word) for word in words]
    return value  # a range, or what the range says is none


def _recorded_of_several(word: str) -> bool:
    from tilewright import ops
    from tilewright.tune import problem_sets

    return sum(bool(problem_sets.recorded(ops.op(op), word)) for op in ops.op_names()) > 1
