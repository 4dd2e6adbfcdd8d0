"""Which kernels a bundle has: of each target, the fewest that serve its problems within a loss (`tune.cover`).

Every problem is asked on every target as selection would there, for the thread counts that are named.  What no kernel
of a target serves as it is, or what is no problem there, is a row of the coverage that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright import jsontext, ops, settings
from tilewright.dispatch import locks, refused
from tilewright.dispatch.registry import Registry
from tilewright.dispatch.selection import Selection
from tilewright.errors import RequestError, TilewrightError, nearest, shown
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.devices import HOST
from tilewright.runtime.host import thread_count
from tilewright.tune import problem_sets
from tilewright.tune.cover import Times, cover
from tilewright.tune.prepare import Made, Wanted, problems_of

CHOICE, LOCKED, POOL, FALLBACK = "choice", "locked", "pool", "fallback"  # why a kernel is in the bundle
WHOLE = ("locked", "measured", "model", "heuristic")  # tiers of a problem that is covered
_ORDER = (*WHOLE, "built", "padded", "fallback", "")  # from best to none


@dataclass(frozen=True, slots=True)
class Asking:
    """One problem on one target, with its stages and what all kernels would take for each."""

    op: str
    problem: Any
    threads: int  # 0 where they do not matter
    stages: tuple[Any, ...]
    why: str = ""  # it cannot be served, or there is nothing to serve


@dataclass(slots=True)
class Plan:
    """Of one target."""

    target: str
    registry: Registry
    askings: list[Asking] = field(default_factory=list)
    times: dict[tuple[int, Any], Times] = field(default_factory=dict)  # by threads and stage
    specs: dict[str, KernelSpec] = field(default_factory=dict)  # all that were looked at
    fixed: dict[str, str] = field(default_factory=dict)  # digests that are in it whatever the loss: their role

    def chosen(self, loss: float, *, fallback: bool) -> dict[str, str]:
        """The digests of its kernels, each with its role."""
        roles = dict(self.fixed)
        if self.times:
            for spec in cover(list(self.times.values()), self.specs, loss).specs:
                roles.setdefault(spec.digest, FALLBACK if self._is_fallback(spec) else CHOICE)
        if fallback:
            for digest in self._fallbacks(roles):
                roles.setdefault(digest, FALLBACK)
        return dict(sorted(roles.items()))

    def _is_fallback(self, spec: KernelSpec) -> bool:
        """Whether only the last tier takes it: as a candidate it would pass for a kernel that is made for a problem."""
        return ops.op(spec.op).fallback_spec(spec.signature, self.target).digest == spec.digest

    def _fallbacks(self, chosen: Iterable[str]) -> list[str]:
        """One for each signature, so that sizes nobody thought of are served too."""
        digests = []
        signatures = {(self.specs[digest].op, self.specs[digest].signature): None for digest in chosen}
        for name, signature in signatures:
            op = ops.op(name)
            spec = op.fallback_spec(signature, self.target)
            if not op.check(spec):
                self.specs.setdefault(spec.digest, spec)
                digests.append(spec.digest)
        return digests


def problems(registry: Registry, what: Sequence[Any]) -> Iterator[tuple[str, Made]]:
    """Each problem with how it is called in a message: what `prepare` takes, or (op, file or set)."""
    for item in what:
        words = item[1] if isinstance(item, tuple) and len(item) == 2 else shown(item)
        if isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
            op, word = item
            makers = problems_of(registry, (op,), {}, word) if op else _of_file(registry, word)
        else:
            makers = problems_of(registry, (item,), {}, None)
        for each in makers:
            yield words, each


def _of_file(registry: Registry, word: str) -> Iterator[Made]:
    """A recording, a problem set, or a file of problems by the name of their op."""
    by_op = _by_op(word)
    if by_op is None:
        yield from problems_of(registry, (word,), {}, None)
        return
    for name, rows in by_op.items():
        for index, row in enumerate(rows):
            try:
                problem = problem_sets.problem(ops.op(name), row)
            except RequestError as error:  # a mistake in the file is one on every target
                error.message = f"{word}, {name}[{index}]: {error.message}"
                raise
            yield lambda problem=problem: problem  # type: ignore[misc]


def _by_op(word: str) -> Mapping[str, list[dict[str, Any]]] | None:
    """The rows of a file {"OP": [problems], ...}; None where it is something else, which others read or refuse."""
    if Path(word).suffix.lower() != ".json":
        return None
    try:
        data = jsontext.loads(jsontext.read(Path(word)))
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{word} is no file of problems: {getattr(error, 'strerror', '') or error}",
            rule="problems-file",
            value=word,
            remedy='give a recording (`tw.record`), or {"OP": [problems], ...} by the names of options',
        ) from None
    if isinstance(data, list):
        raise RequestError(
            f"{word} is a list, which does not say of which op its problems are",
            rule="problems-file",
            value=word,
            remedy=f'give {{"OP": [problems], ...}}, or name the op: --problems OP={word}',
        )
    if not isinstance(data, dict) or not data or "recorded" in data:
        return None
    unknown = [name for name in data if name not in ops.op_names()]
    if unknown:
        raise RequestError(
            f"{word} has problems of {unknown[0]!r}, which is no op",
            rule="problems-file",
            value=unknown[0],
            remedy=nearest(unknown[0], list(ops.op_names())),
        )
    if not all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in data.values()):
        raise RequestError(
            f"{word} has something else than lists of problems under the names of ops",
            rule="problems-file",
            value=word,
            remedy='give {"OP": [{"OPTION": value, ...}], ...} (`tilewright explain OP --help` lists them)',
        )
    return data


def plan(target: str, what: Sequence[Any], threads: Sequence[int] = ()) -> Plan:
    """Ask all problems on a target."""
    registry = Registry(target)
    planned = Plan(target, registry)
    on_host = registry.kind == HOST.kind
    for count in (threads or (thread_count(),)) if on_host else (0,):
        with ExitStack() as scope:
            if count:
                scope.enter_context(settings.override(threads=count))
            wanted = Wanted(registry)
            for words, make in problems(registry, what):
                planned.askings.append(_asking(wanted, make, count, words))
            planned.times.update({(count, stage): times for stage, times in wanted.times.items()})
            planned.specs.update(wanted.specs)
    by_problem = {(asking.op, asking.problem, asking.threads, asking.why): asking for asking in planned.askings}
    planned.askings = list(by_problem.values())
    return planned


def _asking(wanted: Wanted, make: Made, threads: int, words: str) -> Asking:
    problem: Any = None
    try:
        problem = make()
        with settings.override(missing="compile"):
            stages = wanted.stages(problem)
        return Asking(problem.op, problem, threads, stages)
    except TilewrightError as error:
        op = getattr(problem, "op", "")
        return Asking(op, problem if problem is not None else words, threads, (), error.message.partition("\n")[0])


def add_lock(planned: Plan, pins: Iterable[locks.Pin]) -> list[locks.Pin]:
    """Have the kernels that pins of the target name; these pins."""
    mine = [pin for pin in pins if pin.target == planned.target]
    for pin in mine:
        spec = locks.spec_of(ops.op(pin.op), pin)
        if spec is None:
            raise RequestError(
                f"the lock file pins {pin.kernel}, which this version does not have",
                rule="lock-stale",
                value=pin.kernel,
                remedy="lock anew: `tilewright lock`",
            )
        planned.specs[spec.digest] = spec
        planned.fixed[spec.digest] = LOCKED
    return mine


def add_pool(planned: Plan, op: str, pool: str, expression: str = "", limit: int = 0) -> None:
    """Have all kernels of a pool."""
    from tilewright.codegen import collect, demand_some

    pool_specs = collect(op, planned.target, pool=pool, expression=expression, limit=limit)
    demand_some(pool_specs)
    for spec in pool_specs.specs:
        planned.specs[spec.digest] = spec
        planned.fixed.setdefault(spec.digest, POOL)


# -- what it comes to ------------------------------------------------------------------------------------------------


def coverage(planned: Plan, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """For every problem the kernels that selection takes of the bundle, and what they lose beside all there are."""
    candidates = [planned.specs[digest] for digest, role in chosen.items() if role != FALLBACK]
    restricted = Registry(planned.target, candidates)
    rows = []
    for asking in planned.askings:
        with settings.override(threads=asking.threads) if asking.threads else ExitStack():
            rows.append(_row(planned, restricted, asking, chosen))
    return sorted(rows, key=lambda row: (row["op"], row["target"], row["text"], row["threads"]))


def _row(planned: Plan, restricted: Registry, asking: Asking, chosen: Mapping[str, str]) -> dict[str, Any]:
    known = hasattr(asking.problem, "describe")
    row: dict[str, Any] = {
        "op": asking.op,
        "problem": plain(asking.problem) if known else None,
        "text": asking.problem.describe() if known else str(asking.problem),
        "target": planned.target,
        "threads": asking.threads,
        "tier": "",
        "loss": None,
        "stages": [],
        "why": asking.why,
    }
    if asking.why:
        return row
    stages, why = [], list[str]()
    for stage in asking.stages:
        part = _stage(planned, restricted, stage, asking.threads, chosen)
        stages.append(part)
        if part["why"]:
            why.append(part["why"])
    row["stages"] = stages
    row["tier"] = max((part["tier"] for part in stages), key=_ORDER.index)
    losses = [part["loss"] for part in stages]
    row["loss"] = None if any(loss is None for loss in losses) else round(max(losses), 6)
    row["why"] = "; ".join(dict.fromkeys(why))  # stages often have the same reason
    return row


def _stage(planned: Plan, restricted: Registry, stage: Any, threads: int, chosen: Mapping[str, str]) -> dict[str, Any]:
    try:
        with settings.override(missing="compile"):
            selected: Selection = restricted.select_stage(stage)
    except TilewrightError as error:
        return {"digest": "", "kernel": "", "tier": "", "loss": None, "why": error.message.partition("\n")[0]}
    spec = selected.spec
    part: dict[str, Any] = {"digest": spec.digest, "kernel": spec.name, "tier": selected.tier, "loss": None, "why": ""}
    if spec.digest not in chosen:
        part |= {"tier": "", "why": f"{spec.name} would serve it, and is not in the bundle"}
    elif selected.tier not in WHOLE:
        part["why"] = _why_fallback(planned, selected) if selected.tier == "fallback" else selected.reason
    times = planned.times[threads, stage]
    best = min(times.values())
    if part["tier"] in WHOLE and spec.digest in times and best > 0:
        part["loss"] = round(times[spec.digest] / best - 1, 6)
    return part


def _why_fallback(planned: Plan, selected: Selection) -> str:
    """What is missing: kernels of the bundle, or any on this target."""
    spec = selected.spec
    others = ops.op(spec.op).candidates(spec.signature, planned.target)
    if all(other.digest == spec.digest for other in others):
        return refused.no_other(spec)
    return "no kernel of the bundle serves it as it is"


def covered(row: Mapping[str, Any]) -> bool:
    """Whether a problem runs with a kernel that serves it as it is."""
    return row.get("tier") in WHOLE
