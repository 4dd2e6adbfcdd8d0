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
from tilewright.ops.base import Op
from tilewright.runtime.bindings import Check
from tilewright.runtime.checked_runs import CheckedKernel, ProblemRuns
from tilewright.runtime.devices import Device, device_of, identified
from tilewright.runtime.loader import Kernel, load_kernel
from tilewright.runtime.timing import Method, race
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
    """Operands and references of a problem reuse the memory of the last one's: fresh pages cost more than they do."""
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library
    change(_MMAP_THRESHOLD, _KEPT_BYTES)
    change(_TRIM_THRESHOLD, _KEPT_BYTES)


class _Known:
    """What a worker keeps from one request to the next: the problem's operands, and kernels by their library."""

    def __init__(self) -> None:
        self._runs: tuple[str, ProblemRuns] | None = None
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def runs(self, request: Mapping[str, Any], device: Device, spent: Spent) -> ProblemRuns:
        """A problem's kernels come in several batches, and its operands are made for the first."""
        key = json.dumps([request[name] for name in ("op", "problem", "target", "index", "method")], sort_keys=True)
        if self._runs is None or self._runs[0] != key:
            self._runs = None  # its memory is needed now
            with spent.on("operands"):
                problem = ops.op(request["op"]).problem_from_dict(request["problem"])
                self._runs = key, ProblemRuns(problem, device, Method(**request["method"]))
        runs = self._runs[1]
        runs.phase = spent.on
        return runs

    def kernel(self, op: Op, entry: Mapping[str, Any]) -> Kernel:
        key = entry["library"], entry["digest"]
        kernel = self._kernels.get(key)
        if kernel is None:
            if len(self._kernels) >= _MOST_LOADED:
                self._kernels.clear()
            kernel = self._kernels[key] = load_kernel(Path(entry["library"]), op.spec_from_dict(entry["spec"]))
        return kernel


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
        runs = known.runs(request, device, spent)
    except StoreError as error:
        answer({"lost": error.message})
        return True
    except TilewrightError as error:
        lost = isinstance(error, DeviceError)
        answer({"unmade": error.message, "device_error": lost})
        return lost
    right, lost = _checked(request, runs, known, answer)
    if right and not lost:
        answer({"race": len(right)})
        with spent.on("run"):
            race(right, Method(**request["method"]), device.stopwatch())
        for each in _still_right(right, runs, answer):
            answer(
                {"digest": each.spec.digest, "seconds": each.median, "spread": each.spread,
                 "error": each.check.bound_ratio, "non_zero": each.non_zero}
            )  # fmt: skip
    return lost


def _still_right(raced: Sequence[CheckedKernel], runs: ProblemRuns, answer: Answer) -> list[CheckedKernel]:
    """The kernels, the fastest first, without those in front that a last look finds wrong."""

    def on_wrong(checked: CheckedKernel, check: Check, non_zero: int) -> None:
        reason = f"right at first, and wrong in later calls: {check.detail}"
        answer({"digest": checked.spec.digest, "status": "wrong", "reason": reason, "non_zero": non_zero})

    wrong = len(runs.wrong_leaders(raced, on_wrong))
    return sorted(raced, key=lambda checked: checked.median)[wrong:]


def _checked(
    request: Mapping[str, Any], runs: ProblemRuns, known: _Known, answer: Answer
) -> tuple[list[CheckedKernel], bool]:
    """The kernels that compute the problem right, and whether the device was lost meanwhile."""
    right: list[CheckedKernel] = []
    for entry in request["kernels"]:
        digest = entry["digest"]
        answer({"at": digest})
        try:
            with runs.phase("load"):
                kernel = known.kernel(ops.op(request["op"]), entry)
            checked = runs.checked(kernel, request["threads"])
        except DeviceError as error:
            answer({"digest": digest, "status": "crashed", "reason": error.message})
            return right, True
        except TilewrightError as error:
            answer({"digest": digest, "status": "refused", "reason": error.message})
            continue
        if checked.check.ok:
            right.append(checked)
        else:
            answer({"digest": digest, "status": "wrong", "reason": checked.check.detail, "non_zero": checked.non_zero})
    return right, False


if __name__ == "__main__":
    sys.exit(main())
