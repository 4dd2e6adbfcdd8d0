"""What gemm_h200.py and conv_h200.py need in every mode: candidates, one parallel build, checked kernels, and the race
of a measured selection."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

from _cuda_timing import Clock, HostClock, Run
from _h200_operands import Operands, Wrong

import tilewright as tw
from tilewright import ops
from tilewright.backends.base import backend
from tilewright.dispatch import kernels
from tilewright.dispatch.registry import Registry
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec

GEMM = ops.op("gemm")
FAR = 2.5  # what the estimate calls that many times slower than the best is not measured
NEAR = 1.15  # a measured selection's second race takes kernels below this multiple
FIRST_LOOK = 3  # rounds of the first race
SHORT = 30e-6  # seconds: what takes less needs more rounds, which cost little
SHORT_ROUNDS = 15
EVEN = 1.01  # of two that differ less the default kernel is the measured choice too

Ready = dict[str, tuple[KernelSpec, Run]]


class Kernels:
    """The kernels of one target, ready to be timed by a clock."""

    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        self.options, self.clock = options, clock
        self.dry = isinstance(clock, HostClock)
        self.registry = Registry(arch)
        self.far = FAR
        self.wrong: list[str] = []

    def default(self, problem: Any) -> KernelSpec:
        """What the registry selects where nothing was measured."""
        with tw.settings.override(measure=False):
            return self.registry.select(problem).spec

    def candidates(self, problem: Any) -> list[KernelSpec]:
        """The default kernels that serve the problem, those with the lowest estimate first.

        Without those the estimate gives no hope (`far`): of the floor kernel, one look can take a second.
        """
        serving = [one for one in self.registry.candidates(problem) if not ops.op(problem.op).supports(one, problem)]
        estimates = {one.digest: backend("cuda").estimate(one, problem, 1) for one in serving}
        most = self.far * min(estimates.values(), default=0.0)
        hopeful = [one for one in serving if estimates[one.digest] <= most]
        return sorted(hopeful, key=lambda one: estimates[one.digest])

    def build(self, problems: Iterable[Any], every: bool) -> None:
        """All kernels of the run in one parallel build."""
        wanted: dict[str, KernelSpec] = {}
        for one in problems:
            for spec in self.candidates(one) if every else [self.default(one)]:
                wanted.setdefault(spec.digest, spec)
        self.build_specs(list(wanted.values()))

    def build_specs(self, specs: Sequence[KernelSpec]) -> None:
        started = time.perf_counter()
        if not self.dry:
            kernels.kernels(specs)
        print(f"{len(specs)} kernels built and loaded in {time.perf_counter() - started:.1f} s", flush=True)

    def run_of(self, spec: KernelSpec, one: Any) -> Run:
        if self.dry:
            return lambda: one.out.copy_(one.exact()[0])
        run: Run = one.ours(kernels.kernel(spec))
        return run

    def checked(self, specs: Iterable[KernelSpec], one: Any) -> Ready:
        """Kernels that compute the product, ready to be timed; a wrong one is told and left out."""
        found: Ready = {}
        for spec in specs:
            try:
                run = self.run_of(spec, one)
                one.check(spec.name, run, self.clock)
                found[spec.name] = spec, self.clock.captured(run)
            except (Wrong, TilewrightError) as error:
                text = str(error) if isinstance(error, Wrong) else f"{spec.name}: {type(error).__name__}: {error}"
                self.wrong.append(text)
                print(f"WRONG: {text}", flush=True)
        return found

    def race(self, calls: dict[str, Run], favourite: str = "") -> tuple[dict[str, float], str]:
        """Medians of everyone in a short race, of the near ones in a longer one, which decides; and its winner.

        The favourite wins where it is even with the fastest.
        """
        near, medians, rounds = list(calls), dict.fromkeys(calls, 0.0), FIRST_LOOK
        for middle in (min, statistics.median):  # of three looks two may be disturbed
            times = self.clock.rounds([calls[name] for name in near], rounds, "cold")
            medians |= {name: float(middle(taken)) for name, taken in zip(near, times, strict=True)}
            best = min((medians[name] for name in near), default=0.0)
            near = [name for name in near if medians[name] <= NEAR * best]
            rounds = max(SHORT_ROUNDS if best < SHORT else 5, self.options.rounds // 2)
        winner = min(near, key=medians.__getitem__, default="")
        return medians, favourite if favourite in near and medians[favourite] <= EVEN * medians[winner] else winner

    def fastest(self, one: Operands) -> KernelSpec | None:
        """The measured choice."""
        entrants = self.checked(self.candidates(one.problem), one)
        favourite = self.default(one.problem).name
        _, winner = self.race({name: call for name, (_, call) in entrants.items()}, favourite)
        return entrants[winner][0] if winner else None
