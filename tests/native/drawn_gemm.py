"""GEMM problems by a seed, of every kind that kernels tell apart: types, layouts, strides, alignment, empty sizes."""

from __future__ import annotations

import random
from typing import Any

from tilewright import ops
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem

INPUTS = tuple(name for name, one in DTYPES.items() if one.kind != "table" and name != "int32")
OUTPUTS = ("", "", "fp32", "bf16", "int32", "int8")
FUSED = (("PassThrough", 0),) * 4 + (("MultiDAdd", 1), ("MultiDAdd", 2), ("Relu", 0), ("MultiDMultiply", 1))


def _size(r: random.Random) -> int:
    kind = r.random()
    if kind < 0.1:
        return r.choice((0, 1, 2, 3, 4, 7, 8))
    if kind < 0.5:
        return r.randrange(1, 300)
    if kind < 0.9:
        return r.randrange(1, 8192)
    return 1 << r.randrange(16) if kind < 0.97 else r.randrange(1, 1 << r.randrange(20, 34))


def _strides(r: random.Random, m: int, n: int, k: int, layout: str) -> dict[str, Any]:
    """Of operands that do not lie dense; the others follow from the sizes."""
    rows = {"a": k if layout[0] == "r" else m, "b": n if layout[1] == "r" else k, "c": n}
    beyond = (0, 1, 2, 3, 4, 8, 16, 64, 128)
    odd = {f"{name}_stride": max(1, row) + r.choice(beyond) for name, row in rows.items() if r.random() < 0.7}
    return odd if r.random() < 0.4 else {}


def problem(r: random.Random, target: str) -> GemmProblem:
    """One that the target has kernels for."""
    op = ops.op("gemm")
    while True:
        a = r.choice(INPUTS)
        m, n, k, layout, batch = _size(r), _size(r), _size(r), r.choice(("rrr", "rcr", "crr", "ccr")), 1
        if r.random() < 0.4:
            batch = r.choice((2, 3, 16, 128))
        epilogue, num_d = r.choice(FUSED)
        aligned, odd = r.random() < 0.7, r.choice(("", "", "a", "b", "c", "ab", "ac", "bc"))  # "": which is not known
        made = GemmProblem(
            m, n, k, a, a if r.random() < 0.8 else r.choice(INPUTS), r.choice(OUTPUTS),
            layout=layout, batch=batch, epilogue=epilogue, num_d=num_d, beta=r.random() < 0.2,
            preshuffled=r.random() < 0.1, broadcast_a=batch > 1 and r.random() < 0.2,
            broadcast_b=batch > 1 and r.random() < 0.2, aligned=aligned,
            unaligned="" if aligned else odd, **_strides(r, m, n, k, layout),
        )  # fmt: skip
        if not op.problem_violations(made, target):
            return made
