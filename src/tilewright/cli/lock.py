"""`tilewright lock OP`: problems and their families pinned to the kernels that are chosen for them now."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import problem_of, registry_for
from tilewright.cli.common import AsJson, Target, Threads, print_json, say, short_name, show, table
from tilewright.errors import RequestError, TilewrightError, counted

if TYPE_CHECKING:
    from tilewright.dispatch.locks import Pin
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import Op

Change = dict[str, Any]


def register(app: typer.Typer) -> None:
    _ops.register(
        app, "lock", "Pin problems and problem families to kernels, in a lock file.", _lock, _ops.problem_parameters
    )


def _lock(
    op: Any,
    values: dict[str, Any],
    problems: Annotated[
        str, typer.Option("--problems", metavar="SET|FILE", help="Problem set or file, as for `bench`.")
    ] = "",
    file: Annotated[Path, typer.Option(metavar="FILE", help="Lock file to write or compare.")] = Path(
        "tilewright.lock"
    ),
    exact: Annotated[
        bool, typer.Option("--exact", help="Pin only these problems, not their problem families.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="List pins that would change now, without writing.")] = False,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --diff: another lock file to compare with.")
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Fail if the file would change.")] = False,
    target: Target = "",
    threads: Threads = 0,
    json: AsJson = False,
) -> None:
    """Pin the kernels selected now in a file, in addition to earlier pins; TILEWRIGHT_LOCK=FILE uses them.

    A pin speaks for its problem, and for others of its family and signature, which get one of the family's kernels.
    With TILEWRIGHT_FROZEN=1 too, a problem of no pinned family is refused.  Nothing is compiled or run.
    """
    from tilewright import settings
    from tilewright.codegen.folder import held
    from tilewright.dispatch import locks

    if against is not None and not diff:
        raise RequestError(
            "--against is for --diff",
            rule="lock-against",
            value=str(against),
            remedy="give --diff too, or leave it out",
        )
    alone = nullcontext() if diff else held(file.absolute().parent)  # two that write do not lose each other's pins
    with alone, settings.override(lock="", frozen=False), registry_for(target, threads, to_run=False) as registry:
        before = locks.read(file) if diff or file.exists() else {}
        mine = {key: pin for key, pin in before.items() if (pin.op, pin.target) == (op.name, registry.target)}
        if against is not None:
            old = locks.read(against)
            old = {key: pin for key, pin in old.items() if (pin.op, pin.target) == (op.name, registry.target)}
            _print_changes(_changes(old, mine), f"between {against} and {file}", json=json)
            return
        if diff and not _names_problems(op, problems, values):
            _print_changes(_changes(mine, _again(registry, op, mine.values())), "now", json=json)
            return
        pins = _pins(registry, op, _problems_of(op, problems, values, registry), exact=exact)
        changes = _changes(mine, mine | pins)
        if diff:
            _print_changes(changes, "now", json=json)
            return
        if frozen and changes:
            raise RequestError(
                f"{file} would change: {changes[0]['problem']} ({changes[0]['what']}), {len(changes)} in all",
                rule="lock-frozen",
                value=str(file),
                remedy="lock without --frozen, and look at what changed",
            )
        locks.write(file, (before | pins).values())
    if json:
        print_json(changes)
    changed = sum(1 for change in changes if not change["family"])
    kernels = len({pin.digest for pin in pins.values()})
    say(
        f"{counted(len(pins), 'problem')} of {counted(len(locks.families(pins.values())), 'family')} "
        f"pinned to {counted(kernels, 'kernel')}, "
        f"{changed} of them new or changed, in {file}"
    )


def _names_problems(op: Op, problems: str, values: dict[str, Any]) -> bool:
    """Whether the options say which problems are meant."""
    plain = {option.name: option.default if option.kind is bool else None for option in op.options}
    return bool(problems) or any(value not in (None, plain[name]) for name, value in values.items())


def _problems_of(op: Op, word: str, values: dict[str, Any], registry: Registry) -> list[Any]:
    from tilewright.cli._sweep import problems

    if word:
        return problems(op, word, values, registry.arch)
    return [problem_of(op, values, registry.arch).problem]


def _pins(registry: Registry, op: Op, problems: Iterable[Any], *, exact: bool) -> dict[Any, Pin]:
    from tilewright.dispatch import locks

    stages = [op.measured_as(stage) for problem in problems for stage in registry.stages(problem)]
    pins = [
        locks.pin(op, registry.target, fromkey, registry.select(fromkey).stages[0].spec, alone=exact)
        for fromkey in dict.fromkeys(stages)
    ]
    return {pin.key: pin for pin in pins}


def _again(registry: Registry, op: Op, pins: Iterable[Pin]) -> dict[Any, Pin]:
    """What would be pinned now; a problem of another version, or one that is not served any more, is left out."""
    from tilewright.dispatch.locks import ALONE

    renewed: dict[Any, Pin] = {}
    for pin in pins:
        try:
            problem = op.problem_from_dict(dict(pin.problem))
            renewed |= _pins(registry, op, [problem], exact=pin.family == ALONE)
        except TilewrightError:
            continue
    return renewed


# -- what changed ------------------------------------------------------------------------------------------------------


def _changes(before: dict[Any, Pin], after: dict[Any, Pin]) -> list[Change]:
    """Families whose kernels are others, then problems whose kernel is another, or differs under its digest."""
    from tilewright.dispatch import locks
    from tilewright.dispatch.results import canonical

    old, new = locks.families(before.values()), locks.families(after.values())
    changes = []
    for family in dict.fromkeys([*old, *new]):
        kernels = [{pin.digest: pin.kernel for pin in side.get(family, ())} for side in (old, new)]
        if kernels[0].keys() != kernels[1].keys():
            named = next(iter((*old.get(family, ()), *new.get(family, ()))))
            changes.append(_change(named, *(sorted(kernel.values()) for kernel in kernels), family=True))
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if was is not None and (now is None or (now.digest, canonical(now.spec)) != (was.digest, canonical(was.spec))):
            changes.append(_change(was, [was.kernel], [now.kernel] if now is not None else [], family=False))
        elif was is None and now is not None:
            changes.append(_change(now, [], [now.kernel], family=False))
    return changes


def _change(pin: Pin, before: list[str], now: list[str], *, family: bool) -> Change:
    return {
        "what": "new" if not before else "gone" if not now else "changed",
        "family": pin.family if family else "",
        "problem": _family(pin) if family else _description(pin),
        "target": pin.target,
        "before": ", ".join(before),
        "now": ", ".join(now),
    }


def _family(pin: Pin) -> str:
    from tilewright import ops

    try:
        label = ops.op(pin.op).spec_from_dict(dict(pin.spec)).signature.label()
    except TilewrightError:
        label = "of another version"
    return f"all {pin.family} problems of {pin.op} {label}"


def _description(pin: Pin) -> str:
    from tilewright import ops

    try:
        text: str = ops.op(pin.op).problem_from_dict(dict(pin.problem)).describe()
    except TilewrightError:
        return f"{pin.op} {dict(pin.problem)}"
    return text


def _print_changes(changes: list[Change], when: str, *, json: bool) -> None:
    if json:
        print_json(changes)
    else:
        shown = table("what", "problem", "before", "now", fold=["problem", "before", "now"])
        for change in changes:
            shown.add_row(change["what"], change["problem"], _short(change["before"]), _short(change["now"]))
        if changes:
            show(shown)
        families = sum(1 for change in changes if change["family"])
        say(f"{len(changes) - families} problems and {families} families are pinned otherwise {when}")
    if changes:
        raise typer.Exit(1)


def _short(names: str) -> str:
    return ", ".join(map(short_name, names.split(", "))) if names else ""
