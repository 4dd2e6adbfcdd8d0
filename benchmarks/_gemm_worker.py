"""One library in a process of its own: takes requests as JSON lines, answers as JSON lines.

    python benchmarks/_gemm_worker.py numpy|torch|tilewright     started by gemm_cpu.py, not by hand

Threads that wait by spinning live and die with their library's process, which the benchmark stops
while another one has its turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from tilewright.ops.gemm import GemmProblem
from tilewright.runtime.bindings import binding
from tilewright.runtime.samples import poison_results

Call = Callable[[], object]
WARM_SECONDS = 0.003


def problem_of(shape: dict[str, Any]) -> GemmProblem:
    return GemmProblem(m=shape["m"], n=shape["n"], k=shape["k"], layout=shape["layout"], dtype_a=shape["dtype"])


def operands_of(problem: GemmProblem, sample: Any) -> tuple[Any, Any, Any]:
    """A, B and the result as a call takes them: a batch of 1 is not spelled out."""
    a, b, *_, out = sample.operands
    return (a, b, out) if problem.batch != 1 else (a[0], b[0], out[0])


class NumpyPeer:
    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        self._np = import_module("numpy")

    def versions(self) -> dict[str, str]:
        blas = self._np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return {"numpy": self._np.__version__, "blas": f"{blas['name']} {blas['version']}"}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        if shape["dtype"] != "fp32":
            return {}  # NumPy has no BLAS for the others
        problem = problem_of(shape)
        a, b, out = operands_of(problem, binding("gemm").sample(problem, seed))
        return {"": partial(self._np.matmul, a, b, out=out)}


class TorchPeer:
    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        self._torch: Any = import_module("torch")
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)

    def versions(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        torch, problem = self._torch, problem_of(shape)
        a, b, out = operands_of(problem, binding("gemm").sample(problem, seed))
        if problem.dtype_a == "int8":
            multiply = getattr(torch, "_int_mm", None)
            if multiply is None:
                return {}
            return {"": partial(multiply, torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))}
        if problem.dtype_a == "bf16":  # NumPy's bf16 is an extension torch does not know: pass the bits
            a, b, out = (torch.from_numpy(one.view("uint16")).view(torch.bfloat16) for one in (a, b, out))
        else:
            a, b, out = map(torch.from_numpy, (a, b, out))
        return {"": partial(torch.mm, a, b, out=out)}


class Tilewright:
    """Ours, in two forms: `call` is the bare kernel with everything prepared, `gemm` is tw.gemm."""

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        import tilewright as tw

        self._tw, self._threads, self._mode = tw, threads, options["mode"]
        tw.settings.configure(threads=threads, cache_dir=options["store"], measure=self._mode == "measured")
        from tilewright.dispatch.registry import default_registry

        self._registry = default_registry()

    def versions(self) -> dict[str, str]:
        return {"tilewright": self._tw.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        problem, gemm = problem_of(shape), binding("gemm")
        if self._mode == "measured":
            self._registry.measure(problem)
        self.chosen = self._registry.select(problem)
        sample = gemm.sample(problem, seed)
        a, b, out = operands_of(problem, sample)
        found: dict[str, Call] = {
            "call": self._bare(problem, sample),
            "gemm": partial(self._tw.gemm, a, b, out=out),
        }
        for form, call in found.items():
            poison_results(gemm, sample)
            call()
            check = gemm.check(problem, sample)
            if not check.ok:
                raise ArithmeticError(f"{form} of {self.chosen.name}: {check.detail}")
        return found

    def _bare(self, problem: GemmProblem, sample: Any) -> Call:
        """The C call with prepared arguments: what a C caller or a framework pays."""
        import ctypes

        from tilewright.runtime import host
        from tilewright.runtime.arrays import address_of

        kernel = self._registry.kernel(self.chosen.spec)
        if self.chosen.padded is not None:
            from tilewright.runtime.samples import runner

            return runner(binding("gemm"), kernel, problem, sample, host.device(), self._threads)
        args: Any = binding("gemm").dense(problem).stages[0].args
        a, b, *_, out = sample.operands
        args.a, args.b, args.e = (address_of(one) for one in (a, b, out))
        args.alpha = 1.0
        owner, scratch = host.aligned_buffer(max(1, kernel.workspace_bytes(args, self._threads)))
        call = partial(kernel.launch, ctypes.addressof(args), scratch, host.team(self._threads))
        call.keep = (args, owner, sample)  # type: ignore[attr-defined]  # the addresses stay alive with the call
        return call

    def about(self) -> dict[str, str]:
        return {"kernel": self.chosen.name, "tier": self.chosen.tier}


PEERS: dict[str, Callable[[int, dict[str, Any]], Any]] = {
    "numpy": NumpyPeer,
    "torch": TorchPeer,
    "tilewright": Tilewright,
}


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


def serve(name: str, peers: dict[str, Callable[[int, dict[str, Any]], Any]] = PEERS) -> None:
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


if __name__ == "__main__":
    serve(sys.argv[1])
