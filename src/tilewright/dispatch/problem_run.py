"""One problem on random data, through dispatch: what was chosen, how long it took, and whether it is right."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.dispatch.selection import StagedSelection
from tilewright.errors import RequestError, nearest
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.calls import caller
from tilewright.runtime.devices import device_of
from tilewright.runtime.host import clock, thread_count
from tilewright.runtime.plans import Plan, Plans
from tilewright.runtime.requests import Request, Sample

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.runtime.loader import Kernel


class _Watched:
    """A registry with plans of its own, so that the choice made for a call can be seen, or given."""

    def __init__(self, registry: Registry, spec: KernelSpec | None) -> None:
        self._registry, self._spec = registry, spec
        self.kind, self.target = registry.kind, registry.target
        self._plans = Plans()
        self.chosen: Any = None
        self.kernels: tuple[KernelSpec, ...] = ()
        self.workspace = 0  # bytes, copies of operands included

    def plans(self) -> Plans:
        return self._plans

    def plan(self, request: Request) -> Plan:
        plan = self._registry.plan(request, self._spec)
        self.workspace = plan.scratch_bytes + plan.clear_bytes
        self.kernels = tuple(selection.spec for selection in plan.selections)
        self.chosen = plan.selections[0] if len(plan.selections) == 1 else StagedSelection(plan.selections)
        return plan

    def kernel_for(self, problem: Any) -> Kernel:
        return self._registry.kernel(self._spec) if self._spec is not None else self._registry.kernel_for(problem)


def run_problem(
    registry: Registry,
    problem: Any,
    *,
    repeat: int,
    seed: int,
    verify: bool,
    scalars: Mapping[str, float] | None = None,
    spec: KernelSpec | None = None,
) -> dict[str, Any]:
    """Run a problem through dispatch; what happened as plain data.

    `scalars` by name are those of the call; `spec` is run instead of the kernel that would be chosen.
    """
    registry.stages(problem)  # an illegal problem is an error before memory is taken for it
    call = caller(problem.op)
    device = device_of(registry.target)
    watched = _Watched(registry, spec)
    sample = _with_scalars(samples.make(call.binding, problem, seed, device, exact=True), call.binding, scalars or {})
    started = clock()
    operands = call.binding.packed_for(watched, problem, sample.operands)

    def run() -> None:
        call.run(watched, operands, sample.scalars, sample.attributes)
        device.synchronize()  # what is timed is the call and its work

    run()
    first = clock() - started
    times = []
    for _ in range(max(1, repeat)):
        started = clock()
        run()
        times.append(clock() - started)
    seconds = statistics.median(times)
    report: dict[str, Any] = {
        "problem": problem.describe(),
        "target": registry.target,
        "threads": thread_count(),
        "kernel": watched.chosen.name,
        "tier": watched.chosen.tier,
        "reason": watched.chosen.reason,
        "workspace_bytes": watched.workspace,
        "first_seconds": first,
        "seconds": seconds,
        "gflops": problem.flops / seconds / 1e9,
    }
    return {**report, **(_verified(watched, call.binding, problem, sample, run) if verify else {})}


def _verified(watched: _Watched, binding: Any, problem: Any, sample: Sample, run: Any) -> dict[str, Any]:
    samples.poison_results(binding, sample)
    run()
    check = samples.check(binding, problem, sample, watched.kernels)
    return {
        "ok": check.ok,
        "max_error": check.max_error,
        "error_over_bound": check.bound_ratio,
        "detail": check.detail,
    }


def _with_scalars(sample: Sample, binding: Any, scalars: Mapping[str, float]) -> Sample:
    """The sample with other numbers; what a plan knows of them follows."""
    names = list(binding.scalars)
    for name in scalars:
        if name not in names:
            raise RequestError(
                f"{binding.op} has no scalar {name!r}", rule="scalar-name", value=name, remedy=nearest(name, names)
            )
    values = tuple(float(scalars.get(name, known)) for name, known in zip(names, sample.scalars, strict=True))
    return replace(sample, scalars=values, attributes=binding.attributes_for(sample.attributes, values))
