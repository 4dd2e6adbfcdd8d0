"""`tilewright build OP`: fill the kernel store ahead, for processes that must not compile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import _ops
from tilewright.cli import selection as chosen
from tilewright.cli._problems import read_problems, registry_for
from tilewright.cli.common import (
    AsJson,
    Expression,
    Jobs,
    Target,
    Threads,
    Verbose,
    print_json,
    progress,
    say,
)
from tilewright.errors import RequestError, TilewrightError, counted

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.ops.base import KernelSpec, Op

Problems = Annotated[
    str,
    typer.Option(
        "--problems", metavar="SET|FILE",
        help="Build what dispatch selects for a problem set, random:SEED:COUNT, or a JSON, CSV or Parquet file.",
    ),
]  # fmt: skip
LockFile = Annotated[
    Path | None, typer.Option("--lock", metavar="FILE", help="Build the kernels that a lock file pins for the op.")
]


def register(app: typer.Typer) -> None:
    _ops.register(app, "build", "Build kernels into the store ahead of time.", _build, _ops.axis_parameters, lists=True)


@dataclass(slots=True)
class Wanted:
    """What is to be built: kernels once each, what each problem needs, and what cannot be served."""

    target: str
    specs: dict[str, KernelSpec] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    refused: list[tuple[str, TilewrightError]] = field(default_factory=list)


def _build(
    op: Any,
    values: dict[str, Any],
    pool: chosen.Pool = "",
    preselected: chosen.Preselected = "",
    config: chosen.Config = None,
    tile_config_json: chosen.ConfigText = "",
    correct: chosen.Correct = False,
    problems: Problems = "",
    lock: LockFile = None,
    filter: Expression = "",
    limit: chosen.Limit = 0,
    jobs: Jobs = 0,
    target: Target = "",
    threads: Threads = 0,
    verbose: Verbose = False,
    json: AsJson = False,
) -> None:
    """Build the kernels of a pool (`default` unless another is named), a preselected set, problems or a lock file.

    Failures are reported, and the other kernels are still built.  What is in the store already is not built again.
    """
    wish = chosen.Wish(target, pool, preselected, filter, limit, config, tile_config_json, correct)
    if sum(map(bool, (pool, preselected, problems, lock, wish.own))) > 1:
        raise RequestError(
            "a build is of one pool, one preselected set, one configuration, one list of problems or one lock file",
            rule="build-what",
            value=[str(word) for word in (pool, preselected, problems, lock, config or tile_config_json) if word],
            remedy="give one of --pool, --preselected, --config, --problems and --lock, or none for the default pool",
        )
    if problems:
        _demand_alone("a list of problems", values, wish)
        wanted = _of_problems(op, problems, threads, wish)
    elif lock is not None:
        _demand_alone("a lock file", values, wish)
        wanted = _of_lock(op, lock, wish)
    else:
        wanted = _of_selection(op, values, wish)
    _compile(wanted, jobs, verbose=verbose, json=json)


def _of_selection(op: Op, values: dict[str, Any], wish: chosen.Wish) -> Wanted:
    from tilewright.backends.base import resolve_target
    from tilewright.codegen import demand_some

    selection = chosen.choose(op, values, wish)
    demand_some(selection)
    target = resolve_target(wish.target or None, to_run=False).name
    return Wanted(target, {spec.digest: spec for spec in selection.specs})


def _demand_alone(what: str, values: dict[str, Any], wish: chosen.Wish) -> None:
    named = {**values, "--filter": wish.expression, "--limit": wish.limit, "--correct": wish.correct}
    extra = [name for name, value in named.items() if value]
    if extra:
        raise RequestError(
            f"{what} says itself which kernels are meant, so {extra[0]} means nothing",
            rule="build-what",
            value=extra[0],
            remedy="leave it out, or build a pool or a preselected set",
        )


def _of_lock(op: Op, file: Path, wish: chosen.Wish) -> Wanted:
    """The kernels that a lock file pins for the op on the target."""
    from tilewright.backends.base import resolve_target
    from tilewright.dispatch import locks

    wanted = Wanted(resolve_target(wish.target or None, to_run=False).name)
    pins = [pin for pin in locks.read(file).values() if pin.op == op.name]
    mine = [pin for pin in pins if pin.target == wanted.target]
    if not mine:
        others = ", ".join(sorted({pin.target for pin in pins}))
        raise RequestError(
            f"{file} pins no {op.name} kernel for {wanted.target}",
            rule="no-specs",
            value=str(file),
            remedy=f"give --target: it pins kernels for {others}" if others else "lock some with `tilewright lock`",
        )
    for pin in mine:
        spec = locks.spec_of(op, pin)
        if spec is not None:
            wanted.specs[spec.digest] = spec
            continue
        error = RequestError(
            f"{pin.kernel}: this version has no such kernel",
            rule="lock-stale",
            value=pin.kernel,
            remedy="lock it anew: `tilewright lock`; `tilewright lock OP --diff` says what would change",
        )
        wanted.refused.append((pin.kernel, error))
    return wanted


def _problems_of(op: Op, word: str, arch: Arch) -> list[Any]:
    """Problems as `bench` takes them; a file of JSON by any name, a pipe too."""
    from tilewright.cli._sweep import problems
    from tilewright.tune.problem_sets import RANDOM, keys

    path = Path(word)
    if word in keys(op) or word.startswith(f"{RANDOM}:") or path.suffix.lower() in (".csv", ".parquet"):
        return problems(op, word, {}, arch)
    if path.suffix or path.exists() or path.name != word:
        return [problem.problem for problem in read_problems(op, path, arch)]
    return problems(op, word, {}, arch)  # which says what there is


def _of_problems(op: Op, word: str, threads: int, wish: chosen.Wish) -> Wanted:
    """The chosen kernel of every stage of every problem."""
    with registry_for(wish.target, threads, to_run=False) as registry:
        wanted = Wanted(registry.target)
        for problem in _problems_of(op, word, registry.arch):
            name = problem.describe()
            try:
                picked = [registry.select(stage) for stage in registry.stages(problem)]
            except TilewrightError as error:
                wanted.refused.append((name, error))
                continue
            wanted.specs.update({each.spec.digest: each.spec for each in picked})
            kernels = [{"kernel": each.name, "digest": each.spec.digest, "tier": each.tier} for each in picked]
            wanted.problems.append({"problem": name, "kernels": kernels})
    return wanted


def _compile(wanted: Wanted, jobs: int, *, verbose: bool, json: bool) -> None:
    """Build, print, and end with the code of the first thing that went wrong."""
    from tilewright import events
    from tilewright.build import Builder

    built: dict[str, dict[str, Any]] = {}
    failed: dict[str, dict[str, Any]] = {}
    trouble: list[TilewrightError] = [error for _, error in wanted.refused]
    total = len(wanted.specs)
    with progress("build") as advance:

        def heard(event: events.Event) -> None:
            if isinstance(event, events.KernelBuilt):
                built[event.digest] = {"name": event.name, "seconds": event.seconds, "stored": event.cached}
            elif isinstance(event, events.BuildFailed):
                failed[event.name] = {"message": event.message, "log": event.log_path}
            advance(len(built) + len(failed), total)

        try:
            Builder().build_many(wanted.specs.values(), max_workers=jobs or None, on_event=heard)
            if wanted.specs:
                _support(wanted.target)
        except TilewrightError as error:
            trouble.append(error)
    if json:
        print_json(
            {
                "target": wanted.target,
                "built": [{"digest": digest, **facts} for digest, facts in built.items()],
                "failed": [{"name": name, **facts} for name, facts in failed.items()],
                "problems": wanted.problems,
                "refused": [{"problem": name, "message": error.message} for name, error in wanted.refused],
            }
        )
    else:
        _print_results(wanted, built, failed, verbose)
    if trouble:
        raise trouble[0]


def _support(target: str) -> None:
    """What calls need beside kernels: a frozen process must find it in the store too."""
    from tilewright.backends.base import not_runnable
    from tilewright.runtime.support import build_support

    if not_runnable(target) is None:
        build_support()


def _print_results(wanted: Wanted, built: dict[str, Any], failed: dict[str, Any], verbose: bool) -> None:
    if verbose:
        for problem in wanted.problems:
            for kernel in problem["kernels"]:
                typer.echo(f"{problem['problem']}: {kernel['kernel']} ({kernel['tier']})")
        for facts in built.values():
            typer.echo(f"{'stored' if facts['stored'] else 'built'} {facts['name']}")
    for name, error in wanted.refused:
        say(f"cannot be served: {name}: {error.message.removeprefix(f'{name}: ')}")
    for name, facts in failed.items():
        say(f"failed: {name}: {facts['message']}")
    new = sum(not kernel["stored"] for kernel in built.values())
    typer.echo(
        f"{wanted.target}: {new} built, {len(built) - new} were in the store, {len(failed)} failed"
        + (f", {counted(len(wanted.refused), 'problem')} cannot be served" if wanted.refused else "")
    )
