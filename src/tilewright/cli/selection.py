"""Which specs are meant: the options shared by `specs`, `generate` and `build`, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli._ops import axis_values
from tilewright.cli.common import not_empty, say, show, table
from tilewright.errors import FileError, RequestError, counted

if TYPE_CHECKING:
    from tilewright.codegen import Correction, Rejection, SpecSet, Tally
    from tilewright.ops.base import Op

Pool = Annotated[
    str,
    typer.Option(
        "--pool", "--rule-set", callback=not_empty, help="Pool of the op.  [default: default]", show_default=False
    ),
]
Preselected = Annotated[
    str, typer.Option("--preselected", callback=not_empty, help="Preselected set instead of a pool.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="JSON file with lists of schedule values, instead of a pool."),
]
ConfigText = Annotated[
    str, typer.Option("--tile-config-json", metavar="JSON", callback=not_empty, help="The same as JSON text.")
]
Correct = Annotated[
    bool, typer.Option("--correct", help="Replace an illegal configuration by the nearest legal kernel, and report it.")
]
ShowArch = Annotated[bool, typer.Option("--show-arch-info", help="Print the facts of the target, and exit.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Maximum number of specs; 0 means all.")]
WhyNot = Annotated[
    bool,
    typer.Option("--why-not", help="List rejected proposals by the rule they break; with -v every one."),
]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options ask for."""

    target: str = ""
    pool: str = ""
    preselected: str = ""
    expression: str = ""
    limit: int = 0
    config: Path | None = None
    config_text: str = ""
    correct: bool = False

    @property
    def own(self) -> bool:
        """Whether the kernels are a person's own, and not those of a pool."""
        return self.config is not None or bool(self.config_text)


_LOOKS = '{"tile_m": [128, 256], "tile_n": [128], ...}'


def _configuration(wish: Wish) -> Mapping[str, Any] | None:
    """What --config or --tile-config-json holds."""
    from tilewright import jsontext

    if wish.correct and not wish.own:
        raise RequestError(
            "--correct mends configurations, and none was given: pools and sets hold only legal kernels",
            rule="correct-what",
            value="--correct",
            remedy="give --config or --tile-config-json, or leave --correct out",
        )
    if not wish.own:
        return None
    if wish.config is not None and wish.config_text:
        raise RequestError(
            "--config and --tile-config-json are two configurations",
            rule="config-or-text",
            value="--tile-config-json",
            remedy="leave one of them out",
        )
    where = str(wish.config) if wish.config is not None else "--tile-config-json"
    try:
        data = jsontext.loads(
            jsontext.read(wish.config, regular=False) if wish.config is not None else wish.config_text.encode()
        )
    except OSError as error:
        raise FileError(
            f"{where} cannot be read: {error.strerror}", rule="config-file", value=where, remedy="name a JSON file"
        ) from None
    except ValueError as error:
        raise FileError(f"{where} is no JSON: {error}", rule="config-file", value=where, remedy=_LOOKS) from None
    if not isinstance(data, Mapping):
        raise FileError(f"{where} holds no object", rule="config-file", value=where, remedy=f"write {_LOOKS}")
    return data


def choose(op: Op, values: dict[str, Any], wish: Wish) -> SpecSet:
    """The specs the options mean; an axis nobody gave is left to the op's default."""
    from tilewright.codegen import collect

    selection = collect(op.name, correct=wish.correct, **_request(op, values, wish))
    for correction in selection.corrected:
        say(f"corrected {correction.proposal.schedule.label()}: {correction.taken} ({correction.violations[0].rule})")
    return selection


def _request(op: Op, values: dict[str, Any], wish: Wish) -> dict[str, Any]:
    from tilewright.backends.base import resolve_target

    return {
        "arch": resolve_target(wish.target or None, to_run=False).name,
        "pool": wish.pool,
        "preselected": wish.preselected,
        "config": _configuration(wish),
        "expression": wish.expression,
        "limit": wish.limit,
        "axes": axis_values(op, values),
    }


def count(op: Op, values: dict[str, Any], wish: Wish) -> Tally:
    """How many specs the options mean."""
    from tilewright.codegen import Tally, tally

    if not wish.correct:
        return tally(op.name, **_request(op, values, wish))
    selection = choose(op, values, wish)
    return Tally(len(selection.specs), len(selection.rejected), selection.filtered)


def rejection_data(rejection: Rejection) -> dict[str, Any]:
    return {
        "name": rejection.spec.name,
        "spec": rejection.spec.shown(),
        "violations": [
            {"rule": violation.rule, "message": violation.message, "remedy": violation.remedy}
            for violation in rejection.violations
        ],
    }


def correction_data(correction: Correction) -> dict[str, Any]:
    return {
        "asked": correction.proposal.shown(),
        "taken": correction.taken.spec.name,
        "changes": [
            {"name": change.name, "before": change.before, "after": change.after} for change in correction.taken.changes
        ],
    }


def print_why_not(selection: SpecSet, verbose: bool) -> None:
    """Each rule that refused something with its count and one sentence; every proposal when verbose."""
    from tilewright.codegen.collect import nearest_legal

    if not selection.rejected:
        say("no proposal was rejected")
        return
    columns = ("for example", "what would work")
    shown = table(
        "rejected", "rule", *columns, fold=columns, right=["rejected"], title=f"{len(selection.rejected)} rejected"
    )
    for rule, (count, example) in selection.rejections_by_rule().items():
        shown.add_row(str(count), rule, example.message, example.remedy)
    show(shown)
    if verbose:
        for rejection in selection.rejected:
            typer.echo(rejection.spec.name)
            for violation in rejection.violations:
                typer.echo(f"  {violation}")
            if selection.configured:
                typer.echo(f"  nearest: {nearest_legal(rejection) or 'none'}")


def summary(selection: SpecSet) -> str:
    count = len(selection.specs)
    parts = [counted(count, "spec")]
    if selection.corrected:
        parts.append(f"{counted(len(selection.corrected), 'proposal')} corrected")
    if selection.rejected:
        parts.append(f"{counted(len(selection.rejected), 'proposal')} rejected (--why-not lists them)")
    if selection.filtered:
        parts.append(f"{selection.filtered} filtered out")
    if len(parts) == 1 and not selection.specs:
        parts.append("nothing was proposed")
    return ", ".join(parts)
