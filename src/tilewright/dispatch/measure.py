"""Timing kernels against each other on a problem: right first, then fast.

Every candidate is checked against the float64 reference on fresh random data with a poisoned output
before it is timed, and the fastest once more afterwards.  Candidates alternate in each round, so that
a drift of the machine affects all of them alike; the median of the rounds counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import events, ops
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend, demand_runnable
from tilewright.dispatch import kernels as loaded
from tilewright.dispatch.records import Record, Timing, records
from tilewright.errors import InternalError, NoKernelError, ToolchainError, counted
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime.bindings import Check
from tilewright.runtime.checked_runs import CheckedKernel, ProblemRuns
from tilewright.runtime.devices import device_of
from tilewright.runtime.host import thread_count
from tilewright.runtime.loader import Kernel
from tilewright.runtime.timing import Method, race

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry

# Two medians closer than this are called equal, however steady the rounds were.
NOISE_FLOOR = 0.02
# Rounds that scatter more than this say that the machine was busy, not that kernels are equal.
NOISE_CEILING = 0.1


def _checked(kernels: Sequence[Kernel], runs: ProblemRuns, threads: int) -> list[CheckedKernel]:
    """Kernels that compute the problem right; a wrong one is reported and left out."""
    right = []
    for kernel in kernels:
        checked = runs.checked(kernel, threads)
        if checked.check.ok:
            right.append(checked)
        else:
            _report_wrong(kernel, runs.problem, checked.check)
    return _some(right, kernels, runs.problem)


def _still_right(raced: Sequence[CheckedKernel], runs: ProblemRuns) -> list[CheckedKernel]:
    """The same, in their order, without those in front that a last look finds wrong."""
    wrong = runs.wrong_leaders(raced, lambda checked, check, _: _report_wrong(checked.kernel, runs.problem, check))
    left = [checked for checked in raced if all(checked is not other for other in wrong)]
    return _some(left, [checked.kernel for checked in raced], runs.problem)


def _report_wrong(kernel: Kernel, problem: Any, check: Check) -> None:
    events.emit(events.Warned("wrong-result", f"{kernel.name} on {problem.describe()}: {check.detail}"))


def _some(right: list[CheckedKernel], kernels: Sequence[Kernel], problem: Any) -> list[CheckedKernel]:
    if not right:
        raise InternalError(
            f"none of {counted(len(kernels), 'kernel')} computes {problem.describe()} within its bound",
            rule="wrong-result",
            value=[kernel.name for kernel in kernels],
            remedy="report this with the output of `tilewright doctor`",
        )
    return right


def _winner(raced: Sequence[CheckedKernel]) -> CheckedKernel:
    return raced[winner([(checked.median, checked.spread) for checked in raced])]


def winner(times: Sequence[tuple[float, float | None]]) -> int:
    """The first of medians with spreads (the incumbent leads them) that is not measurably slower than the fastest.

    Where a spread is not known, any noise there may be is allowed for.
    """
    best, spread = min(times, key=lambda time: time[0])
    for index, (median, own) in enumerate(times):
        both = NOISE_CEILING if own is None or spread is None else (own + spread) / 2
        noise = min(NOISE_CEILING, max(NOISE_FLOOR, both))
        if median <= best * (1 + noise):
            return index
    raise AssertionError("the fastest is not slower than itself")


def candidates_for(registry: Registry, problem: Any, specs: Iterable[KernelSpec] | None) -> list[KernelSpec]:
    """Kernels that serve the problem, the present choice first."""
    op = ops.op(problem.op)
    known = registry.candidates(problem) if specs is None else list(specs)
    usable = [spec for spec in known if not op.supports(spec, problem)]
    if not usable:
        raise NoKernelError(
            f"none of {counted(len(known), 'kernel')} serves {problem.describe()} as it is",
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
    specs = None if candidates is None else list(candidates)
    stages = registry.stages(problem)
    measurements = []
    for stage in stages:
        signature = ops.op(stage.op).signature_of(stage)
        mine = None if specs is None else [spec for spec in specs if len(stages) == 1 or spec.signature == signature]
        measurements.append(measure_stage(registry, stage, mine or None, **options))
    return measurements[0] if len(measurements) == 1 else tuple(measurements)


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
    runs = ProblemRuns(problem, device, method)
    right = _checked(kernels, runs, threads)
    race(right, method, device.stopwatch())
    right = _still_right(right, runs)
    best = _winner(right)
    for checked in right:
        if events.active():
            events.emit(
                events.Measured(problem.describe(), checked.kernel.name, checked.median, checked.check.bound_ratio)
            )
    timings = tuple(
        Timing(
            checked.spec.digest,
            checked.kernel.name,
            checked.spec.to_dict(),
            checked.median,
            checked.spread,
            checked.check.bound_ratio,
        )
        for checked in sorted(right, key=lambda checked: checked.median)
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
