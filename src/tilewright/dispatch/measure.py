"""Timing kernels against each other on a problem: right first, then fast.

Every candidate is checked against the float64 reference on fresh random data with a poisoned output
before it is timed, and the fastest once more afterwards.  Candidates take turns in each round, so that
a drift of the machine meets all of them alike; the median of the rounds counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright import events, ops
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend, demand_runnable
from tilewright.dispatch import kernels as loaded
from tilewright.dispatch.records import Record, Timing, records
from tilewright.errors import InternalError, NoKernelError, ToolchainError
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime import samples
from tilewright.runtime.bindings import Check, binding
from tilewright.runtime.devices import Device, device_of
from tilewright.runtime.host import thread_count
from tilewright.runtime.loader import Kernel
from tilewright.runtime.timing import Contestant, Method, Run, false_leaders, race

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry

# Two medians closer than this are called equal, however steady the rounds were.
NOISE_FLOOR = 0.02
# Rounds that scatter more than this say that the machine was busy, not that kernels are equal.
NOISE_CEILING = 0.1


@dataclass(slots=True)
class _Entrant(Contestant):
    """A kernel in the race, checked."""

    kernel: Kernel = field(kw_only=True)
    error: float = field(kw_only=True)
    look: Callable[[], Check] = field(kw_only=True)  # what one more call computes


def _checked(kernels: Sequence[Kernel], problem: Any, threads: int, method: Method, device: Device) -> list[_Entrant]:
    """Kernels that compute the problem right; a wrong one is reported and left out."""
    bound = binding(problem.op)
    # The further sets only keep the caches from helping: their values need no check.
    sets = [samples.make(bound, problem, method.seed, device) for _ in range(max(1, method.buffers))]
    apart = bound.checks_apart(problem)
    judged = samples.make(bound, problem, method.seed, device, exact=True) if apart else sets[0]
    judge = samples.judge(bound, problem, judged)

    def look(spec: KernelSpec, call: Run) -> Check:
        samples.poison_results(bound, judged)
        call()
        return judge(spec)[0]

    entrants = []
    for kernel in kernels:
        runs = [samples.runner(bound, kernel, problem, one, device, threads) for one in sets]
        call = samples.runner(bound, kernel, problem, judged, device, threads) if apart else runs[0]
        check = look(kernel.spec, call)
        if not check.ok:
            _tell_wrong(kernel, problem, check)
            continue
        again = partial(look, kernel.spec, call)
        entrants.append(_Entrant(runs, kernel=kernel, error=check.bound_ratio, look=again))
    return _some(entrants, kernels, problem)


def _still_right(entrants: Sequence[_Entrant], problem: Any) -> list[_Entrant]:
    """Entrants, in their order, without those in front that a last look finds wrong."""

    def right(one: _Entrant) -> bool:
        check = one.look()
        if not check.ok:
            _tell_wrong(one.kernel, problem, check)
        return check.ok

    wrong = {id(one) for one in false_leaders(entrants, right)}
    left = [one for one in entrants if id(one) not in wrong]
    return _some(left, [one.kernel for one in entrants], problem)


def _tell_wrong(kernel: Kernel, problem: Any, check: Check) -> None:
    events.emit(events.Warned("wrong-result", f"{kernel.name} on {problem.describe()}: {check.detail}"))


def _some(entrants: list[_Entrant], kernels: Sequence[Kernel], problem: Any) -> list[_Entrant]:
    if not entrants:
        raise InternalError(
            f"none of {len(kernels)} kernel(s) computes {problem.describe()} within its bound",
            rule="wrong-result",
            value=[one.name for one in kernels],
            remedy="report this with the output of `tilewright doctor`",
        )
    return entrants


def _winner(entrants: Sequence[_Entrant]) -> _Entrant:
    return entrants[winner([(one.median, one.spread) for one in entrants])]


def winner(times: Sequence[tuple[float, float | None]]) -> int:
    """The first of medians with spreads (the incumbent leads them) that is not measurably slower than the fastest.

    Where a spread is not known, any noise there may be is allowed for.
    """
    best, spread = min(times, key=lambda one: one[0])
    for index, (median, own) in enumerate(times):
        both = NOISE_CEILING if own is None or spread is None else (own + spread) / 2
        noise = min(NOISE_CEILING, max(NOISE_FLOOR, both))
        if median <= best * (1 + noise):
            return index
    raise AssertionError("the fastest is not slower than itself")


def candidates_for(registry: Registry, problem: Any, given: Iterable[KernelSpec] | None) -> list[KernelSpec]:
    """Kernels that serve the problem, the present choice first."""
    op = ops.op(problem.op)
    known = registry.candidates(problem) if given is None else list(given)
    usable = [spec for spec in known if not op.supports(spec, problem)]
    if not usable:
        raise NoKernelError(
            f"none of {len(known)} kernel(s) serves {problem.describe()} as it is",
            rule="nothing-to-measure",
            value=[f"{spec.name}: {'; '.join(map(str, op.supports(spec, problem)))}" for spec in known],
            remedy="add kernels of its signature with edge code for its sizes",
        )
    present = registry.select_stage(problem, strict=False).spec.digest
    return sorted(usable, key=lambda spec: spec.digest != present)


def measure(registry: Registry, problem: Any, candidates: Iterable[KernelSpec] | None = None, **options: Any) -> Any:
    """Build, check and time kernels for a problem; the record names the winner.

    Of a problem of several stages each is measured apart, as itself: then a tuple of records.  `options` are those of
    `measure_stage`.
    """
    given = None if candidates is None else list(candidates)
    stages = registry.stages(problem)
    found = []
    for stage in stages:
        signature = ops.op(stage.op).signature_of(stage)
        mine = None if given is None else [spec for spec in given if len(stages) == 1 or spec.signature == signature]
        found.append(measure_stage(registry, stage, mine or None, **options))
    return found[0] if len(found) == 1 else tuple(found)


def measure_stage(
    registry: Registry,
    problem: Any,
    candidates: Iterable[KernelSpec] | None = None,
    *,
    rounds: int = 9,
    flush: bool = False,
    buffers: int = 1,
    save: bool = True,
    max_workers: int | None = None,
    on_event: Callable[[events.Event], None] | None = None,
) -> Record:
    """The record of one stage, kept when `save`.

    `flush` times every call with cold caches, `buffers` rotates through that many sets of operands.
    """
    problem = ops.op(problem.op).measured_as(problem)
    threads = thread_count()
    method = Method(rounds=rounds, seed=secrets.randbelow(2**32), flush=flush, buffers=buffers)
    specs = candidates_for(registry, problem, candidates)
    for name in {spec.arch for spec in specs}:
        demand_runnable(name)
    kernels = loaded.kernels(specs, max_workers=max_workers, on_event=on_event)
    device = device_of(registry.target)
    entrants = _checked(kernels, problem, threads, method, device)
    race(entrants, method, device.stopwatch())
    entrants = _still_right(entrants, problem)
    best = _winner(entrants)
    for one in entrants:
        if events.active():
            events.emit(events.Measured(problem.describe(), one.kernel.name, one.median, one.error))
    timings = tuple(
        Timing(one.kernel.spec.digest, one.kernel.name, one.kernel.spec.to_dict(), one.median, one.spread, one.error)
        for one in sorted(entrants, key=lambda one: one.median)
    )
    record = Record(
        op=problem.op,
        problem=plain(problem),
        threads=threads,
        target=registry.target,
        choice=best.kernel.spec.digest,
        timings=timings,
        method={"kind": "interleaved rounds, median", **plain(method)},
        versions=versions_of(best.kernel.spec),
    )
    if save:
        records().put(record)
    return record


def versions_of(spec: KernelSpec) -> dict[str, str]:
    """What made a kernel, for those who read its times later."""
    return versions_on(spec.arch)


def versions_on(arch: str) -> dict[str, str]:
    """What makes kernels of an arch on this machine."""
    from tilewright import __version__

    try:
        compiler = backend(arch_by_name(arch).backend).toolchain().identity
    except ToolchainError:  # the kernels were built elsewhere, and are no slower for it
        return {"tilewright": __version__, "compiler": "none on this machine", "compiler_digest": ""}
    return {"tilewright": __version__, "compiler": compiler.version, "compiler_digest": compiler.digest}
