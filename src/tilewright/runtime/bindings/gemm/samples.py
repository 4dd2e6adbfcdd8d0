"""Operands made up for a GEMM problem: random values, poisoned outputs, memory laid out as the problem says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.reference import judgement, verify
from tilewright.ops.numerics import NARROW_BITS, Check
from tilewright.runtime.bindings.gemm.operands import D0, OUT, UP, A, B, C
from tilewright.runtime.bindings.gemm.request import MATHS, Attributes
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.random_values import random_values
from tilewright.runtime.requests import Sample
from tilewright.runtime.samples import poison

Array = np.ndarray[Any, np.dtype[Any]]


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return random_values(generator, math.prod(shape), dtype).reshape(shape)


def may_be_narrow(problem: GemmProblem) -> bool:
    """Whether some kernels of the problem's signature keep too few bits of a sum to be judged by random values."""
    return problem.dtype_a.startswith("fp8") and problem.dtype_b.startswith("fp8")


def _exact(generator: np.random.Generator, shape: tuple[int, ...], dtype: str, k: int) -> Array:
    """1 and 2 of either sign among zeros, so few of them that |A||B| stays well below 2^NARROW_BITS."""
    # The mean of |a||b| is 2.25 times the square of the share that is not 0.
    share = min(1.0, math.sqrt(2.0 ** (NARROW_BITS - 1) / (2.25 * max(1, k))))
    values = generator.choice(np.array([-2.0, -1.0, 1.0, 2.0], np.float32), shape)
    values[generator.random(shape, np.float32) >= share] = 0.0
    return values.astype(numpy_dtype(dtype))


def _view(memory: Array, letter: str, rows: int, columns: int) -> Array:
    """Memory of (batch, lines, leading stride) as matrices."""
    return memory[:, :rows, :columns] if letter == "r" else memory[:, :columns, :rows].swapaxes(1, 2)


def sample(problem: GemmProblem, seed: int = 0, exact: bool = False) -> Sample:
    """Operands as a call takes them, each with a batch dimension; an output full of NaN (or -1 bits).

    `exact`: where sums may be narrow, values whose sums no kernel has to cut.
    """
    p = problem
    generator = np.random.default_rng(seed)
    lines_a, lines_b = (p.m if p.layout[0] == "r" else p.k), (p.k if p.layout[1] == "r" else p.n)
    a = _random(generator, (1 if p.broadcast_a else p.batch, lines_a, p.a_stride), p.dtype_a)
    b = _random(generator, (1 if p.broadcast_b else p.batch, lines_b, p.b_stride), p.dtype_b)
    c = _random(generator, (p.batch, p.m, p.c_stride), p.dtype_c) if p.beta else None
    ds = [_random(generator, (p.batch, p.m, p.n), p.dtype_d) for _ in range(p.num_d)]
    out = np.empty((p.batch, p.m, p.c_stride), numpy_dtype(p.dtype_c))
    if exact and may_be_narrow(p):
        a = _exact(generator, a.shape, p.dtype_a, p.k)
        b = _exact(generator, b.shape, p.dtype_b, p.k)
    poison(out)
    operands: list[Any] = [None] * (UP + 1)
    operands[A] = _view(a, p.layout[0], p.m, p.k)
    operands[B] = _view(b, p.layout[1], p.k, p.n)
    operands[C] = _view(c, "r", p.m, p.n) if c is not None else None
    operands[D0 : D0 + len(ds)] = ds
    operands[OUT] = _view(out, "r", p.m, p.n)
    if p.dual:
        up = _random(generator, (1 if p.broadcast_b else p.batch, lines_b, p.b_stride), p.dtype_b)
        operands[UP] = _view(up, p.layout[1], p.k, p.n)
    math_name = p.dtype_a if p.dtype_a in MATHS else ""
    attributes = Attributes(p.epilogue, None, math_name, 1 if p.beta else 0, p.layout)
    return Sample(tuple(operands), (1.0, 1.0 if p.beta else 0.0), tuple(attributes))


def named(sample: Sample) -> dict[str, Any]:
    """What the reference takes: a, b, c, ds, alpha, beta."""
    alpha, beta = sample.scalars
    a, b, c, *ds, _, up = sample.operands
    return {"a": a, "b": b, "c": c, "ds": tuple(d for d in ds if d is not None), "alpha": alpha,
            "beta": beta, "b_up": up}  # fmt: skip


def check(problem: GemmProblem, sample: Sample) -> Check:
    return verify(problem, named(sample), sample.operands[OUT])


def judge(problem: GemmProblem, sample: Sample) -> Callable[[Sample], Check]:
    ask = judgement(problem, named(sample))
    return lambda result: ask(result.operands[OUT])
