"""Kernels of one problem on one device, each checked before it is timed: the same for a measurement and for a sweep.

Every kernel runs on fresh random operands with a poisoned output, and its result is judged by the float64 reference.
Those that are right race each other (`timing.race`); whoever leads is judged once more afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.bindings import Check, binding
from tilewright.runtime.devices import Device
from tilewright.runtime.loader import Kernel
from tilewright.runtime.timing import Contestant, Method, Run, false_leaders

Phase = Callable[[str], AbstractContextManager[object]]  # around each part of the work, by its name: load, run, verify


@dataclass(slots=True)
class CheckedKernel(Contestant):
    """A kernel to time; `judged` is the call whose result is looked at."""

    kernel: Kernel = field(kw_only=True)
    judged: Run = field(kw_only=True)
    check: Check = field(kw_only=True)
    non_zero: int = field(kw_only=True)  # elements of the result that are not 0

    @property
    def spec(self) -> KernelSpec:
        return self.kernel.spec


def _nothing(phase: str) -> AbstractContextManager[object]:
    return nullcontext()


class ProblemRuns:
    """What the kernels of a problem run on: operands on a device, and a judge of the results."""

    def __init__(self, problem: Any, device: Device, method: Method, phase: Phase = _nothing) -> None:
        self.problem, self.device, self.phase = problem, device, phase
        self._binding = bound = binding(problem.op)
        # The further sets only keep the caches from helping: their values need no check.
        self._sets = [samples.make(bound, problem, method.seed, device) for _ in range(max(1, method.buffers))]
        self._apart = bound.checks_apart(problem)
        self._judged = samples.make(bound, problem, method.seed, device, exact=True) if self._apart else self._sets[0]
        self._judge = samples.judge(bound, problem, self._judged)

    def checked(self, kernel: Kernel, threads: int) -> CheckedKernel:
        """A kernel with what its first call computed, right or not."""

        def runner(sample: Any) -> Run:
            return samples.runner(self._binding, kernel, self.problem, sample, self.device, threads)

        with self.phase("load"):
            runs = [runner(each) for each in self._sets]
            judged = runner(self._judged) if self._apart else runs[0]
        check, non_zero = self._look(kernel.spec, judged)
        return CheckedKernel(runs, kernel=kernel, judged=judged, check=check, non_zero=non_zero)

    def _look(self, spec: KernelSpec, call: Run) -> tuple[Check, int]:
        """What one more call computes."""
        with self.phase("load"):
            samples.poison_results(self._binding, self._judged)
        with self.phase("run"):
            call()
            self.device.synchronize()
        with self.phase("verify"):
            return self._judge(spec)

    def wrong_leaders(
        self, raced: Sequence[CheckedKernel], on_wrong: Callable[[CheckedKernel, Check, int], None]
    ) -> list[CheckedKernel]:
        """Those in front of a race that a last look finds wrong; each is reported."""

        def right(checked: CheckedKernel) -> bool:
            check, non_zero = self._look(checked.spec, checked.judged)
            if not check.ok:
                on_wrong(checked, check, non_zero)
            return check.ok

        return false_leaders(raced, right)
