"""One problem on random data, through dispatch: what was chosen, how long it took, and whether it is right."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tilewright.dispatch.registry import Registry
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.devices import device_of
from tilewright.runtime.host import clock, thread_count


class _Watched:
    """A registry with plans of its own, so that the choice made for a call can be seen."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._plans: dict[Any, Any] = {}
        self.chosen: Any = None

    def plans(self) -> dict[Any, Any]:
        return self._plans

    def plan(self, *request: Any, **options: Any) -> Any:
        prepared = self._registry.plan(*request, **options)
        self.chosen = prepared.selection
        return prepared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


def run_problem(
    registry: Any,
    problem: Any,
    *,
    repeat: int,
    seed: int,
    verify: bool,
    scalars: Mapping[str, float] = MappingProxyType({}),
    spec: KernelSpec | None = None,
) -> dict[str, Any]:
    """Run a problem through dispatch (with one kernel, where given); what happened as plain data."""
    if spec is not None:
        registry = Registry(registry.target, [spec])
    registry.candidates(problem)  # an illegal problem is an error before memory is taken for it
    bound = binding(problem.op)
    device = device_of(registry.target)
    operands = {**bound.operands(problem, seed, device, exact=True), **scalars}
    watched = _Watched(registry)
    started = clock()
    positions, keywords = bound.call_arguments(watched, problem, operands)
    bound.run(watched, *positions, **keywords)
    device.synchronize()
    first = clock() - started
    times = []
    for _ in range(repeat):
        started = clock()
        bound.run(watched, *positions, **keywords)
        device.synchronize()  # what is timed is the call and its work
        times.append(clock() - started)
    seconds = statistics.median(times)
    report: dict[str, Any] = {
        "problem": problem.describe(),
        "target": registry.target,
        "threads": thread_count(),
        "kernel": watched.chosen.name,
        "tier": watched.chosen.tier,
        "reason": watched.chosen.reason,
        "first_seconds": first,
        "seconds": seconds,
        "gflops": problem.flops / seconds / 1e9,
    }
    if verify:
        bound.poison(operands)
        bound.run(watched, *positions, **keywords)
        check = bound.check(problem, operands)
        report |= {
            "ok": check.ok,
            "max_error": check.max_error,
            "error_over_bound": check.bound_ratio,
            "detail": check.detail,
        }
    return report
