"""What measuring is expected to take before any of it was done: for a budget's first batch, and the time left at first.

Compilers: as long as they took for kernels of the same op and arch that the kernel store has, else a stated guess.
Runs: the analytic estimate, repeated as the protocol says.  What comes beside runs (a process that starts, operands, a
reference, a check) is stated here, and is right to a factor of a few: who measures goes by what it took from then on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Any

from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.arch.host import host_facts
from tilewright.backends.base import backend
from tilewright.build import Builder, Store
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.timing import Method

BUILD = 6.0  # seconds of a compiler for a kernel, where the store has none of its kind
START = 0.6  # until a worker answers
ROW = 0.004  # of a kernel that is loaded, checked and reported
TRUST = 2.0  # seconds of work after which what it took counts as much as what is said here
A_BYTE = 1.5e-8  # of a problem's operands: drawn, and compared with
AN_OPERATION = 2e-11  # of a reference, which processors compute
_LOOKED_AT = 400  # entries of a kernel store
_UNKNOWN = 1e-3  # seconds of a kernel whose estimate says nothing


class Prices:
    """Of kernels of one target that are measured by one protocol."""

    def __init__(self, op: str, target: str, threads: int, jobs: int | None = None) -> None:
        self._op, self._target, self._threads = op, target, max(1, threads)
        self._jobs = jobs or settings.current().jobs or host_facts().cores
        self._built: set[str] = set()
        self._each: float | None = None

    def builds(self, specs: Iterable[KernelSpec]) -> list[float]:
        """Of the first one, of the first two and so on: those the kernel store lacks, several compilers at a time."""
        missing = list(accumulate(not self._is_built(spec) for spec in specs))
        each = self._compiler() if missing and missing[-1] else 0.0
        return [math.ceil(count / self._jobs) * each for count in missing]

    def _is_built(self, spec: KernelSpec) -> bool:
        if spec.digest not in self._built:
            try:
                artifact = Builder().find(spec)
            except TilewrightError:
                artifact = None  # whoever builds it reports it
            if artifact is None:
                return False
            self._built.add(spec.digest)
        return True

    def _compiler(self) -> float:
        """Seconds of one."""
        if self._each is None:
            try:
                known = [
                    float(manifest["seconds"])
                    for manifest in islice(Store().manifests(), _LOOKED_AT)
                    if manifest["spec"]
                    and (manifest["spec"].get("op"), manifest["spec"].get("arch")) == (self._op, self._target)
                ]
            except TilewrightError:
                known = []
            if not known:
                return BUILD  # until there is one
            self._each = statistics.median(known)
        return self._each

    def problem(self, problem: Any) -> float:
        """What all its kernels share: operands and a reference."""
        return A_BYTE * float(problem.bytes) + AN_OPERATION * float(problem.flops)

    def row(self, spec: KernelSpec, problem: Any, method: Method) -> float:
        """One kernel on a problem, checked and timed."""
        try:
            once = float(backend(arch_by_name(spec.arch).backend).estimate(spec, problem, self._threads))
        except TilewrightError:
            once = _UNKNOWN
        once = once if 0 < once < math.inf else _UNKNOWN
        rounds = method.rounds * max(method.sample_seconds, once)
        return ROW + rounds + (1 + max(1, method.warmups)) * once

    def batches(self, problem: Any, specs: Sequence[KernelSpec], method: Method) -> list[float]:
        """Of the first one, of the first two and so on: kernels of one problem, by a worker that has to start."""
        rows = accumulate(self.row(spec, problem, method) for spec in specs)
        return [START + self.problem(problem) + row for row in rows]
