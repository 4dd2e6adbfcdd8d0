"""Rows of E, C and D tensors so far apart that each operand spans more than 4 GiB; what is touched is a few pages.

A process of its own, like the worker: spec, library and seed in, what is wrong out.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.amd_emulated.proof import aligned, judge
from tests.amd_emulated.session import Session
from tests.backends.cpu.gemm.harness import Array, Block, ordinary
from tilewright.dtypes import DTYPES
from tilewright.ops import op
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.loader import Kernel, load_kernel
from tilewright.runtime.numpy_types import numpy_dtype

APART = 80 << 20  # bytes from row to row
ROWS = 56  # 4.4 GiB
OPERANDS = ("e", "c", "d0", "d1")  # 64 KiB from one to the next


class Far:
    """Matrices of `ROWS` rows in one mapping of which nearly no page exists."""

    def __init__(self, columns: int, dtype: str) -> None:
        self.memory = mmap.mmap(-1, ROWS * APART)
        self.shape, self.dtype = (ROWS, columns), dtype
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def view(self, name: str) -> Array:
        strides = (APART, DTYPES[self.dtype].bytes)
        return np.ndarray(self.shape, numpy_dtype(self.dtype), self.memory, self.at(name), strides)

    @staticmethod
    def at(name: str) -> int:
        return OPERANDS.index(name) << 16


def prove(kernel: Kernel, seed: int, session: Any) -> str:
    """What is wrong with a result in such memory; empty where it is right."""
    s, (_, n, k) = kernel.spec.signature, kernel.spec.schedule.tile
    k *= 2 * kernel.spec.schedule.split_k
    p = GemmProblem(
        ROWS, n, k, s.dtype_a, s.dtype_b, s.dtype_c, s.dtype_d, s.layout, epilogue=s.epilogue, num_d=s.num_d, beta=True,
        c_stride=APART // DTYPES[s.dtype_c].bytes,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    a = Block.make(1, *((p.m, p.k) if p.layout[0] == "r" else (p.k, p.m)), p.a_stride, 0, p.dtype_a, aligned)
    b = Block.make(1, *((p.k, p.n) if p.layout[1] == "r" else (p.n, p.k)), p.b_stride, 0, p.dtype_b, aligned)
    far = Far(p.n, p.dtype_c)
    ds = [f"d{index}" for index in range(p.num_d)]
    inputs = [(a.view(), p.dtype_a), (b.view(), p.dtype_b), *((far.view(one), p.dtype_c) for one in ("c", *ds))]
    for one, dtype in inputs:
        one[...] = ordinary(rng, one.shape, dtype)
    args = GemmArgs(m=p.m, n=p.n, k=p.k, batch=1, alpha=0.5, beta=2.0, a_stride=p.a_stride, b_stride=p.b_stride)
    args.a, args.b, args.c, args.e = a.address, b.address, far.address + far.at("c"), far.address + far.at("e")
    args.c_stride = args.e_stride = p.c_stride
    for index, name in enumerate(ds):
        args.d[index], args.d_row_stride[index], args.d_col_stride[index] = far.address + far.at(name), p.c_stride, 1
    size = max(1, kernel.workspace_bytes(args, 1))
    workspace = Block.make(1, 1, size, size, 0, "int8", aligned)
    refusal = kernel.refusal(args)
    if refusal:
        return f"refused: {refusal}"
    status = kernel.launch(ctypes.addressof(args), workspace.address, None)
    session.raise_failure()
    if status:
        return f"launch answered {status}"
    arrays = {
        "a": a.view() if p.layout[0] == "r" else a.view().swapaxes(1, 2),
        "b": b.view() if p.layout[1] == "r" else b.view().swapaxes(1, 2),
        "c": far.view("c"),
        "ds": tuple(map(far.view, ds)),
        "alpha": 0.5,
        "beta": 2.0,
    }
    return judge(p, arrays, far.view("e")[None])[2]


def main() -> None:
    request = json.loads(sys.stdin.read())
    spec = op("gemm").spec_from_dict(request["spec"])
    session = Session(spec.arch, request["seed"])  # before any library is loaded
    sys.stdout.write(prove(load_kernel(Path(request["library"]), spec), request["seed"], session))


if __name__ == "__main__":
    main()
