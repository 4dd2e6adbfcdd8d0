"""The process that runs kernels for a sweep: whatever a kernel does to it, the sweep goes on.

One request a line on standard input: a problem and the libraries of kernels for it.  The answers are lines too, each
sent as soon as it is known: `at` before a kernel is first run, then its row; kernels that compute the problem right are
timed together at the end, in turns (`race` says that this begins).  Standard output belongs to the answers alone; what
libraries print goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilewright import ops, settings
from tilewright.dispatch.results import OK
from tilewright.errors import DeviceError, TilewrightError
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding
from tilewright.runtime.devices import device_of
from tilewright.runtime.loader import load_kernel
from tilewright.runtime.timing import Contestant, Method, race

Answer = Callable[[Mapping[str, Any]], None]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_DEVICE_LOST = 3


def main() -> int:
    """Answer requests until there are no more."""
    answer = _channel()
    _die_with_parent()
    for line in sys.stdin:
        request = json.loads(line)
        with settings.override(threads=request["threads"]):
            lost = _serve(request, answer)
        answer({"done": True})
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


class _Entrant(Contestant):
    """A kernel that computes the problem right."""

    def __init__(self, digest: str, runs: Any, error: float, non_zero: int) -> None:
        super().__init__(runs)
        self.digest, self.error, self.non_zero = digest, error, non_zero


def _serve(request: Mapping[str, Any], answer: Answer) -> bool:
    """Check, then time; whether the device was lost."""
    op = ops.op(request["op"])
    problem = op.problem_from_dict(request["problem"])
    bound, device, method = binding(op.name), device_of(request["target"]), Method(**request["method"])
    threads = request["threads"]
    answer({"at": ""})  # what is made for the problem takes its time too
    sets = [samples.make(bound, problem, method.seed, device) for _ in range(max(1, method.buffers))]
    apart = bound.checks_apart(problem)
    judged = samples.make(bound, problem, method.seed, device, exact=True) if apart else sets[0]
    judge = samples.judge(bound, problem, judged)
    entrants = []
    for one in request["kernels"]:
        digest = one["digest"]
        answer({"at": digest})
        try:
            kernel = load_kernel(Path(one["library"]), op.spec_from_dict(one["spec"]))
            samples.poison_results(bound, judged)
            runs = [samples.runner(bound, kernel, problem, each, device, threads) for each in sets]
            (samples.runner(bound, kernel, problem, judged, device, threads) if apart else runs[0])()
            check, non_zero = judge()
        except DeviceError as error:
            answer({"digest": digest, "status": "crashed", "reason": error.message})
            return True
        except TilewrightError as error:
            answer({"digest": digest, "status": "refused", "reason": error.message})
            continue
        if not check.ok:
            answer({"digest": digest, "status": "wrong", "reason": check.detail, "non_zero": non_zero})
            continue
        entrants.append(_Entrant(digest, runs, check.bound_ratio, non_zero))
    if not entrants:
        return False
    answer({"race": len(entrants)})
    race(entrants, method, device.stopwatch())
    for each in entrants:
        answer(
            {"digest": each.digest, "status": OK, "seconds": each.median, "spread": each.spread, "error": each.error,
             "non_zero": each.non_zero}
        )  # fmt: skip
    return False


if __name__ == "__main__":
    sys.exit(main())
