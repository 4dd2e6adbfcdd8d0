"""`tilewright lock OP`: problems pinned to the kernels that are chosen for them now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli._problems import problem_of, registry_for
from tilewright.cli.common import AsJson, Target, Threads, print_json, say, short_name, show, table
from tilewright.errors import RequestError, TilewrightError

if TYPE_CHECKING:
    from tilewright.dispatch.locks import Pin
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import Op

Change = dict[str, Any]


def register(app: typer.Typer) -> None:
    _ops.register(app, "lock", "Pin problems to kernels.", _lock, _ops.problem_parameters)


def _lock(
    op: Any,
    given: dict[str, Any],
    problems: Annotated[str, typer.Option("--problems", metavar="SET|FILE", help="As `bench` takes them.")] = "",
    file: Annotated[Path, typer.Option(metavar="FILE", help="The lock file.")] = Path("tilewright.lock"),
    diff: Annotated[bool, typer.Option("--diff", help="Say which of its pins would be others now.")] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Refuse to change the file: an error if it would.")] = False,
    target: Target = "",
    threads: Threads = 0,
    json: AsJson = False,
) -> None:
    """Write which kernels are chosen now into a file, beside what it pins already; TILEWRIGHT_LOCK takes them.

    With TILEWRIGHT_FROZEN=1 too, a problem that is not pinned is refused.  Nothing is compiled or run.
    """
    from tilewright import settings
    from tilewright.dispatch import locks

    before = locks.read(file) if diff or file.exists() else {}
    with settings.override(lock="", frozen=False), registry_for(target, threads, to_run=False) as registry:
        if diff:
            mine = [one for one in before.values() if (one.op, one.target) == (op.name, registry.target)]
            changes = [_change(one, _again(registry, op, one)) for one in mine]
            _tell([one for one in changes if one["what"] != "same"], len(mine), json=json)
            return
        found = _pins(registry, op, _asked(op, problems, given, registry))
    changes = [_change(before.get(one.key), one) for one in found]
    changed = [one for one in changes if one["what"] != "same"]
    if frozen and changed:
        raise RequestError(
            f"{file} would change: {changed[0]['problem']} ({changed[0]['what']}), {len(changed)} in all",
            rule="lock-frozen",
            value=str(file),
            remedy="lock without --frozen, and look at what changed",
        )
    locks.write(file, (before | {one.key: one for one in found}).values())
    if json:
        print_json(changed)
    say(f"{len(found)} problems pinned, {len(changed)} of them new or changed, in {file}")


def _asked(op: Op, word: str, given: dict[str, Any], registry: Registry) -> list[Any]:
    from tilewright.cli._sweep import problems

    if word:
        return problems(op, word, given, registry.arch)
    return [problem_of(op, given, registry.arch).problem]


def _pins(registry: Registry, op: Op, problems: list[Any]) -> list[Pin]:
    from tilewright.dispatch import locks

    stages = [stage for one in problems for stage in registry.stages(one)]
    pins = [locks.pin(op, registry.target, one, registry.select(op.measured_as(one)).stages[0].spec) for one in stages]
    return list({one.key: one for one in pins}.values())


def _again(registry: Registry, op: Op, one: Pin) -> Pin | None:
    """What would be pinned now."""
    try:
        return _pins(registry, op, [op.problem_from_dict(dict(one.problem))])[0]
    except TilewrightError:  # a problem of another version, or one that is not served any more
        return None


def _change(before: Pin | None, now: Pin | None) -> Change:
    there = before or now
    assert there is not None
    what = "new" if before is None else "gone" if now is None else "same" if before.digest == now.digest else "changed"
    return {
        "what": what, "problem": _told(there), "target": there.target,
        "before": before.kernel if before is not None else "", "now": now.kernel if now is not None else "",
    }  # fmt: skip


def _told(one: Pin) -> str:
    from tilewright import ops

    try:
        text: str = ops.op(one.op).problem_from_dict(dict(one.problem)).describe()
    except TilewrightError:
        return f"{one.op} {dict(one.problem)}"
    return text


def _tell(changed: list[Change], total: int, *, json: bool) -> None:
    if json:
        print_json(changed)
    else:
        shown = table("what", "problem", "before", "now", fold=["problem", "before", "now"])
        for one in changed:
            shown.add_row(one["what"], one["problem"], short_name(one["before"]), short_name(one["now"]))
        if changed:
            show(shown)
        say(f"{len(changed)} of {total} pins would be others now")
    if changed:
        raise typer.Exit(1)
