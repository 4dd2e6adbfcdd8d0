"""One library in a process of its own, for whoever races libraries on the CPU: JSON lines in, JSON lines out.

Threads that wait by spinning live and die with their library's process, which the benchmark stops while another one
has its turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.runtime.bindings import binding
from tilewright.runtime.samples import poison_results, runner

Call = Callable[[], object]
Peers = Mapping[str, Callable[[int, dict[str, Any]], Any]]
WARM_SECONDS = 0.003


class OwnSide:
    """Ours, in two forms: `call` is the kernel with everything prepared, and by the op's name the call a user makes."""

    op: str

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        import tilewright as tw

        self._tw, self._threads, self._mode = tw, threads, options["mode"]
        tw.settings.configure(threads=threads, cache_dir=options["store"], measure=self._mode == "measured")
        from tilewright.dispatch.registry import default_registry

        self._registry = default_registry()

    def problem_of(self, shape: dict[str, Any]) -> Any:
        raise NotImplementedError

    def user_call(self, problem: Any, sample: Any) -> Call:
        raise NotImplementedError

    def bare_call(self, problem: Any, sample: Any) -> Call:
        from tilewright.runtime import host

        kernel = self._registry.kernel(self.chosen.spec)
        return runner(binding(self.op), kernel, problem, sample, host.device(), self._threads)

    def versions(self) -> dict[str, str]:
        return {"tilewright": self._tw.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        problem, bound = self.problem_of(shape), binding(self.op)
        if self._mode == "measured":
            self._registry.measure(problem)
        self.chosen = self._registry.select(problem)
        sample = bound.sample(problem, seed)
        found = {"call": self.bare_call(problem, sample), self.op: self.user_call(problem, sample)}
        for form, call in found.items():
            poison_results(bound, sample)
            call()
            check = bound.check(problem, sample, (self.chosen.spec,))
            if not check.ok:
                raise ArithmeticError(f"{form} of {self.chosen.name}: {check.detail}")
        return found

    def about(self) -> dict[str, str]:
        return {"kernel": self.chosen.name, "tier": self.chosen.tier}


def timed(call: Call, repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds a call, after a short warm-up that also wakes the library's threads."""
    start = clock()
    while True:
        call()
        if clock() - start > WARM_SECONDS:
            break
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def end_with_parent() -> None:
    """A stopped process would outlive a benchmark that was killed."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def serve(name: str, peers: Peers) -> None:
    end_with_parent()
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is not an answer
    peer: Any = None
    calls: dict[str, Call] = {}
    clock = time.perf_counter
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["do"] == "start":
                peer = peers[name](request["threads"], request)
                clock = time.process_time if request.get("cpu_time") else time.perf_counter
                answer = peer.versions()
            elif request["do"] == "prepare":
                made = peer.calls(request["shape"], request["seed"])
                calls |= {f"{request['key']}{form}": call for form, call in made.items()}
                answer = {"forms": sorted(made), **(peer.about() if name == "tilewright" else {})}
            elif request["do"] == "time":
                answer = {"seconds": timed(calls[request["key"]], request["repeats"], clock)}
            elif request["do"] == "forget":
                calls.clear()
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
