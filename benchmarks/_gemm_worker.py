"""One library in a process of its own, for gemm_cpu.py; see _cpu_worker.py.

python benchmarks/_gemm_worker.py numpy|torch|tilewright     started by gemm_cpu.py, not by hand
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Any

from _cpu_worker import Call, OwnSide, Peers, serve

from tilewright.ops.gemm import GemmProblem
from tilewright.runtime.bindings import binding

OUT = [slot.name for slot in binding("gemm").slots].index("out")


def problem_of(shape: dict[str, Any]) -> GemmProblem:
    return GemmProblem(m=shape["m"], n=shape["n"], k=shape["k"], layout=shape["layout"], dtype_a=shape["dtype"])


def operands_of(problem: GemmProblem, sample: Any) -> tuple[Any, Any, Any]:
    """A, B and the result as a call takes them: a batch of 1 is not spelled out."""
    a, b, out = sample.operands[0], sample.operands[1], sample.operands[OUT]
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
            return self.int8_calls(*map(torch.from_numpy, (a, b, out)))
        if problem.dtype_a == "bf16":  # NumPy's bf16 is an extension torch does not know: pass the bits
            a, b, out = (torch.from_numpy(one.view("uint16")).view(torch.bfloat16) for one in (a, b, out))
        else:
            a, b, out = map(torch.from_numpy, (a, b, out))
        return {"": partial(torch.mm, a, b, out=out)}

    def int8_calls(self, a: Any, b: Any, out: Any) -> dict[str, Call]:
        """PyTorch's integer product; none where it has none, or where it does not compute."""
        multiply = getattr(self._torch, "_int_mm", None)
        if multiply is None:
            return {}
        if a.shape[0] == 1:  # with strides (1, 1), a column-major row as NumPy has it, it computes nothing
            a = a.as_strided(a.shape, (a.shape[1], 1))
        call = partial(multiply, a, b, out=out)
        out.fill_(-1)
        call()
        expected = (a.double() @ b.double()).to(out.dtype)
        return {"": call} if self._torch.equal(out, expected) else {}


class Tilewright(OwnSide):
    """`call` is the bare kernel with everything prepared, `gemm` is tw.gemm."""

    op = "gemm"

    def problem_of(self, shape: dict[str, Any]) -> GemmProblem:
        return problem_of(shape)

    def user_call(self, problem: GemmProblem, sample: Any) -> Call:
        a, b, out = operands_of(problem, sample)
        return partial(self._tw.gemm, a, b, out=out)

    def bare_call(self, problem: GemmProblem, sample: Any) -> Call:
        """The C call with prepared arguments: what a C caller or a framework pays."""
        import ctypes

        from tilewright.runtime import host
        from tilewright.runtime.arrays import address_of

        if self.chosen.padded is not None:
            return super().bare_call(problem, sample)
        kernel = self._registry.kernel(self.chosen.spec)
        args: Any = binding("gemm").dense(problem).stages[0].args
        a, b, out = sample.operands[0], sample.operands[1], sample.operands[OUT]
        args.a, args.b, args.e = (address_of(one) for one in (a, b, out))
        args.alpha = 1.0
        owner, scratch = host.aligned_buffer(max(1, kernel.workspace_bytes(args, self._threads)))
        call = partial(kernel.launch, ctypes.addressof(args), scratch, host.team(self._threads))
        call.keep = (args, owner, sample)  # type: ignore[attr-defined]  # the addresses stay alive with the call
        return call


PEERS: Peers = {"numpy": NumpyPeer, "torch": TorchPeer, "tilewright": Tilewright}

if __name__ == "__main__":
    serve(sys.argv[1], PEERS)
