"""The process that runs kernels for a sweep: whatever a kernel does to it, the sweep goes on.

It says once that it is `ready`.  One request a line on standard input: a problem and the libraries of kernels for it.
The answers are lines too, each sent as soon as it is known: which device it is (`lost` where it is gone), `at` before a
kernel is first run, then its row; kernels that compute the problem right are timed together at the end, in turns
(`race` says that this begins).
Standard output belongs to the answers alone; what libraries print goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import ops, settings
from tilewright.errors import DeviceError, StoreError, TilewrightError
from tilewright.ops.base import KernelSpec, Op
from tilewright.runtime import samples
from tilewright.runtime.bindings import Check, binding
from tilewright.runtime.devices import Device, device_of, identified
from tilewright.runtime.loader import Kernel, load_kernel
from tilewright.runtime.timing import Contestant, Method, Run, false_leaders, race
from tilewright.tune.spent import Spent

Answer = Callable[[Mapping[str, Any]], None]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_DEVICE_LOST = 3
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt
_KEPT_BYTES = (1 << 31) - 1
_MOST_LOADED = 512  # kernels that stay loaded: those of a signature come with each of its problems


def main() -> int:
    """Answer requests until there are no more."""
    answer = _channel()
    _die_with_parent()
    _keep_memory()
    known = _Known()
    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        spent = Spent()
        with settings.override(threads=request["threads"]):
            lost = _serve(request, answer, spent, known)
        answer({"done": True, "ends": lost, "spent": spent})
        if lost:
            return _DEVICE_LOST  # after such an error nothing runs on it in this process
    return 0


def _channel() -> Answer:
    """Standard output for the answers alone."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(data: Mapping[str, Any]) -> None:
        out.write(json.dumps(data) + "\n")
        out.flush()

    return answer


def _die_with_parent() -> None:
    """A kernel that hangs does not outlive the sweep that started it."""
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return  # not on this system; a hanging kernel must be killed by hand
    if os.getppid() == 1:
        os._exit(1)


def _keep_memory() -> None:
    """Operands and references of a problem lie where those of the last one did: fresh pages cost more than they do."""
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library
    change(_MMAP_THRESHOLD, _KEPT_BYTES)
    change(_TRIM_THRESHOLD, _KEPT_BYTES)


class _Entrant(Contestant):
    """A kernel that computes the problem right; `judged` is the call whose result said so."""

    def __init__(self, kernel: Kernel, calls: tuple[list[Run], Run], error: float, non_zero: int) -> None:
        super().__init__(calls[0])
        self.spec, self.judged, self.error, self.non_zero = kernel.spec, calls[1], error, non_zero


class _Table:
    """What a problem's kernels run on: operands on a device, and a judge of the results."""

    def __init__(self, op: Op, problem: Any, device: Device, method: Method, spent: Spent) -> None:
        self.op, self.problem, self.device, self.spent = op, problem, device, spent
        self._binding = bound = binding(op.name)
        self._sets = [samples.make(bound, problem, method.seed, device) for _ in range(max(1, method.buffers))]
        self._apart = bound.checks_apart(problem)
        self._judged = samples.make(bound, problem, method.seed, device, exact=True) if self._apart else self._sets[0]
        self._judge = samples.judge(bound, problem, self._judged)

    def check(self, kernel: Kernel, threads: int) -> tuple[tuple[list[Run], Run], Check, int]:
        """The kernel's calls (those to time, the one to judge by), what it computes, and how much of it is not 0."""

        def runner(sample: Any) -> Run:
            return samples.runner(self._binding, kernel, self.problem, sample, self.device, threads)

        with self.spent.on("load"):
            runs = [runner(each) for each in self._sets]
            judged = runner(self._judged) if self._apart else runs[0]
        return (runs, judged), *self.judge(kernel.spec, judged)

    def judge(self, spec: KernelSpec, call: Run) -> tuple[Check, int]:
        """What one more call computes."""
        with self.spent.on("load"):
            samples.poison_results(self._binding, self._judged)
        with self.spent.on("run"):
            call()
            self.device.synchronize()
        with self.spent.on("verify"):
            return self._judge(spec)


class _Known:
    """What a worker keeps from one request to the next: the problem's table, and kernels by their library."""

    def __init__(self) -> None:
        self._table: tuple[str, _Table] | None = None
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def table(self, request: Mapping[str, Any], device: Device, spent: Spent) -> _Table:
        """A problem's kernels come in several batches, and its table is made for the first."""
        key = json.dumps([request[name] for name in ("op", "problem", "target", "index", "method")], sort_keys=True)
        if self._table is None or self._table[0] != key:
            self._table = None  # its memory is needed now
            op = ops.op(request["op"])
            with spent.on("operands"):
                problem = op.problem_from_dict(request["problem"])
                self._table = key, _Table(op, problem, device, Method(**request["method"]), spent)
        table = self._table[1]
        table.spent = spent
        return table

    def kernel(self, op: Op, one: Mapping[str, Any]) -> Kernel:
        key = one["library"], one["digest"]
        found = self._kernels.get(key)
        if found is None:
            if len(self._kernels) >= _MOST_LOADED:
                self._kernels.clear()
            found = self._kernels[key] = load_kernel(Path(one["library"]), op.spec_from_dict(one["spec"]))
        return found


def _serve(request: Mapping[str, Any], answer: Answer, spent: Spent, known: _Known) -> bool:
    """Check, then time; whether the device was lost."""
    try:
        device = device_of(request["target"], request["index"])
        answer({"at": "", "device": identified(device.identity)["fingerprint"]})
    except DeviceError as error:
        answer({"lost": error.message})
        return True
    if not request["kernels"]:
        return False  # it was only asked whether the device is there
    try:
        with spent.on("load"):
            device.stream()  # the host's team is compiled where it never was, and no kernel's limit pays for that
        table = known.table(request, device, spent)
    except StoreError as error:
        answer({"lost": error.message})
        return True
    except TilewrightError as error:
        lost = isinstance(error, DeviceError)
        answer({"unmade": error.message, "device_error": lost})
        return lost
    entrants, lost = _checked(request, table, known, answer)
    if entrants and not lost:
        answer({"race": len(entrants)})
        with spent.on("run"):
            race(entrants, Method(**request["method"]), device.stopwatch())
        for each in _still_right(entrants, table, answer):
            answer(
                {"digest": each.spec.digest, "seconds": each.median, "spread": each.spread, "error": each.error,
                 "non_zero": each.non_zero}
            )  # fmt: skip
    return lost


def _still_right(entrants: Sequence[_Entrant], table: _Table, answer: Answer) -> list[_Entrant]:
    """The entrants, the fastest first, without those in front that a last look finds wrong."""

    def right(one: _Entrant) -> bool:
        check, non_zero = table.judge(one.spec, one.judged)
        if not check.ok:
            reason = f"right at first, and wrong in later calls: {check.detail}"
            answer({"digest": one.spec.digest, "status": "wrong", "reason": reason, "non_zero": non_zero})
        return check.ok

    wrong = len(false_leaders(entrants, right))
    return sorted(entrants, key=lambda one: one.median)[wrong:]


def _checked(request: Mapping[str, Any], table: _Table, known: _Known, answer: Answer) -> tuple[list[_Entrant], bool]:
    """The kernels that compute the problem right, and whether the device was lost on the way."""
    entrants: list[_Entrant] = []
    for one in request["kernels"]:
        digest = one["digest"]
        answer({"at": digest})
        try:
            with table.spent.on("load"):
                kernel = known.kernel(table.op, one)
            calls, check, non_zero = table.check(kernel, request["threads"])
        except DeviceError as error:
            answer({"digest": digest, "status": "crashed", "reason": error.message})
            return entrants, True
        except TilewrightError as error:
            answer({"digest": digest, "status": "refused", "reason": error.message})
            continue
        if not check.ok:
            answer({"digest": digest, "status": "wrong", "reason": check.detail, "non_zero": non_zero})
            continue
        entrants.append(_Entrant(kernel, calls, check.bound_ratio, non_zero))
    return entrants, False


if __name__ == "__main__":
    sys.exit(main())
