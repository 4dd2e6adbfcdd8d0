"""What dispatch is asked, as people give it: problems, specs and threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from tilewright import ops
from tilewright.errors import ProblemError, RequestError, shown
from tilewright.ops.base import KernelSpec, Op, demand_legal
from tilewright.runtime.host import thread_count
from tilewright.settings import Settings


def op_of(problem: Any) -> Op:
    """The op of a problem; what is no problem has one clear error."""
    name = getattr(type(problem), "op", None)
    if not isinstance(name, str) or isinstance(problem, type):
        raise RequestError(
            f"{shown(problem, 80)} is not a problem",
            rule="problem-type",
            value=type(problem).__name__,
            remedy=f"give a problem of an op ({', '.join(ops.op_names())}); `ops.op(NAME).problem(values)` makes one",
        )
    return ops.op(name)


def demanded_spec(spec: object) -> KernelSpec:
    """The spec itself; what is none, a name or the selection that has one, is one error."""
    if not isinstance(spec, KernelSpec):
        raise RequestError(
            f"{shown(spec)} is not a kernel's spec",
            rule="spec-type",
            value=shown(spec),
            remedy="give specs, such as `registry.candidates(problem)` has, or a pool (`add_pool(op)`)",
        )
    return spec


def legal_specs(specs: KernelSpec | Iterable[KernelSpec], arch: str, runs: Collection[str]) -> list[KernelSpec]:
    """Specs as a caller gives them, one or several; an illegal one, or one of an arch that is not run, is an error."""
    try:
        listed = [specs] if isinstance(specs, KernelSpec) else list(specs)
    except TypeError:
        listed = [cast("KernelSpec", specs)]  # it is none, as the next lines say
    for spec in listed:
        demanded_spec(spec)
        demand_legal(ops.op(spec.op), spec)
        if spec.arch not in runs:
            raise RequestError(
                f"{spec.name} is for {spec.arch}, which {arch} does not run",
                rule="spec-arch",
                value=spec.arch,
                remedy=f"use Registry({spec.arch!r}), or specs of {', '.join(sorted(runs))}",
            )
    return listed


def demand_legal_problem(op: Op, problem: Any, arch: str) -> None:
    """Refuse a problem that no kernel of the arch could serve."""
    broken = op.problem_violations(problem, arch)
    if broken:
        raise ProblemError(
            f"{problem.describe()}: " + "; ".join(violation.message for violation in broken),
            rule=broken[0].rule,
            value=problem,
            remedy=broken[0].remedy,
        )


def strictness(strict: Any) -> bool:
    if not isinstance(strict, bool):
        text = shown(strict)
        raise RequestError(f"strict is {text}", rule="strict", value=text, remedy="give True or False")
    return strict


def thread_number(threads: int | None) -> int:
    """Threads as a caller gives them; None and 0 are all there are."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 0):
        raise RequestError(
            f"threads is {shown(threads)}",
            rule="threads",
            value=shown(threads),
            remedy="give 1 or more, or 0 for all there are",
        )
    return threads or thread_count()


def setting_words(now: Settings) -> list[str]:
    """What a command needs of the lock file and the rule in force, to choose the same again."""
    locked = [*(["--lock", now.lock] if now.lock else []), *(["--frozen"] if now.lock and now.frozen else [])]
    return [*locked, *(["--rule", now.rule] if now.rule else [])]
