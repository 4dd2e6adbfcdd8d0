"""What a GEMM should give, in float64, and how far from it a kernel may be.

The one statement of error bounds is the docstring of `error_bound`; tests, measurements and the
command line all judge results by `verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.fused import ACTIVATIONS, GATES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.numerics import (
    LARGEST,
    TINY32,
    U32,
    Array,
    Check,
    Comparison,
    activation,
    after_activation,
    after_rounding,
    gamma,
    narrow_part,
    round_to,
    sampled_rows,
)

# Rows of a large problem are sampled: two float64 products of this many operations take a fraction of a second.
FULL_CHECK_FLOPS = 4e9
_FEW_ROWS, _LEAST_COLUMNS, _WIDENED = 64, 64, 1 << 17  # rows of A; columns and elements of B that are widened together


@dataclass(frozen=True, slots=True)
class Exact:
    """The result before its last rounding, and what the bound needs."""

    value: Array  # float64
    before: Array  # what went into the activation
    size: Array  # |alpha| |A||B| + |beta| |C| + |D| ..., the size of what was summed
    products: Array  # |alpha| |A||B| (int8: |alpha| |A.B|), scaled by multiplied Ds
    factor: Array | None  # what an activation is multiplied by, and how far a sum that stands for it may be off
    factor_error: Array | None
    flushed: Array | float  # what is lost for each 2^-126 that counts as 0: |alpha| (K + 1), scaled by multiplied Ds


def exact(problem: GemmProblem, arrays: Mapping[str, Any], rows: Array | slice = slice(None)) -> Exact:
    """The GEMM in float64 (sums of int8 products are exact there), without rounding to the output type.

    `arrays` holds a (.., m, k), b (.., k, n), c or None, ds, alpha, beta; batches broadcast.
    """
    with np.errstate(all="ignore"):
        a, b = np.asarray(arrays["a"])[..., rows, :], np.asarray(arrays["b"])
        alpha, beta = float(arrays["alpha"]), float(arrays["beta"])
        total = _product(a, b, np.float64)
        if DTYPES[problem.dtype_a].kind == "int":
            total = (total.astype(np.int64) + 2**31) % 2**32 - 2**31  # int32 sums wrap
            sizes = np.abs(total).astype(np.float64)
        else:
            sizes = sizes_of(a, b)
        flushed: Array | float = abs(alpha) * (problem.k + 1.0)
        if problem.dtype_a == problem.dtype_b == "bf16":  # inputs too: x86's dot product of pairs does so
            lost = [
                np.abs(operand.astype(np.float32)).sum(axis, dtype=np.float64) for operand, axis in ((a, -1), (b, -2))
            ]
            flushed = flushed + abs(alpha) * (lost[0][..., :, None] + lost[1][..., None, :])
        # A sweep asks this of every problem: what changes nothing is left out.
        x = total.astype(np.float64, copy=False) * alpha if alpha != 1 else total.astype(np.float64, copy=False)
        products = abs(alpha) * sizes if abs(alpha) != 1 else sizes
        size = products
        if beta != 0:
            c = np.asarray(arrays["c"])[..., rows, :].astype(np.float64)
            x = x + beta * c
            size = size + np.abs(beta * c)
        scaled: Array | float | None = None
        factor, factor_error = _factor(problem, arrays, rows)
        for tensor in arrays["ds"] if factor is None else ():
            d = _rows_of(np.asarray(tensor), rows, problem.m).astype(np.float64)
            if problem.epilogue == "MultiDMultiply":
                x, scaled = x * d, np.abs(d) * (1.0 if scaled is None else scaled)
            else:
                x, size = x + d, size + np.abs(d)
        value = activation(problem.epilogue, x) if problem.epilogue in ACTIVATIONS else x
        if factor is not None:
            value = activation(GATES[problem.epilogue], x) * factor
        if scaled is not None:
            size, products, flushed = size * scaled, products * scaled, flushed * scaled
        return Exact(value, x, size, products, factor, factor_error, flushed)


def _factor(problem: GemmProblem, arrays: Mapping[str, Any], rows: Array | slice) -> tuple[Array | None, Array | None]:
    """What a gate's activation is multiplied by, and how far that may be off: D0 not at all, A.B_up as any sum."""
    if problem.epilogue not in GATES:
        return None, None
    if not problem.dual:
        (d,) = arrays["ds"]
        return _rows_of(np.asarray(d), rows, problem.m).astype(np.float64), None
    up = {**arrays, "b": arrays["b_up"], "ds": (), "alpha": 1.0, "beta": 0.0}
    result = exact(replace(problem, epilogue="PassThrough"), up, rows)
    return result.value, _sum_error(problem, result, False)


def _product(a: Array, b: Array, kind: Any, *, sizes: bool = False) -> Array:
    """A B in a wider type, or |A||B|; where A has few rows by columns of B: what is widened of it stays in a cache."""
    wide = a.astype(kind)
    if sizes:
        np.abs(wide, out=wide)
    rows, columns = a.shape[-2], b.shape[-1]
    lines = b.size // max(1, columns)
    step = max(_LEAST_COLUMNS, _WIDENED // max(1, lines)) if rows <= _FEW_ROWS else max(1, columns)
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), rows, columns), kind)
    room = np.empty_like(b[..., : min(step, columns)], kind)  # in the order that B has in memory
    for first in range(0, columns, step):
        part = room[..., : min(step, columns - first)]
        np.copyto(part, b[..., first : first + step], casting="unsafe")
        if sizes:
            np.abs(part, out=part)
        out[..., first : first + step] = wide @ part
    return out


def sizes_of(a: Array, b: Array) -> Array:
    """|A||B|, or a little more: from a product in fp32, which takes half as long as one in float64.

    Sums of K sizes lose at most a part of gamma_K there, and 2^-126 for each product that counts as 0.
    """
    k = a.shape[-1]
    with np.errstate(all="ignore"):
        if max(a.itemsize, b.itemsize) <= 4:
            short = _product(a, b, np.float32, sizes=True)
            if np.max(short, initial=0.0) <= LARGEST["fp32"] / 4:  # NaN is not
                sizes = short.astype(np.float64)
                sizes += k * TINY32
                sizes *= 1.0 + gamma(k)
                return sizes
        return _product(a, b, np.float64, sizes=True)


def _rows_of(d: Array, rows: Array | slice, m: int) -> Array:
    """The wanted rows of a D that may be a vector or have one row."""
    return d[..., rows, :] if d.ndim > 1 and d.shape[-2] == m and m != 1 else d


def error_bound(problem: GemmProblem, result: Exact, narrow_sums: bool = False) -> Array:
    """How far each element of a right result may be from `found.value`.

    Float outputs.  With u = 2^-24 and gamma_n = n u / (1 - n u), a sum of K products in fp32, in any
    order, is within gamma_K |A||B| of the true one; rounding the products, alpha and its product adds
    three more factors (1 + u), so

        e0 = gamma_{K+3} |alpha| |A||B|            (int8 inputs: the sum is exact, so gamma_4 |alpha A.B|)
        e1 = e0 + 3 u (|alpha| |A||B| + |beta C|)   beta's rounding, its product, the addition
        e2 = e1 + n_D u (... + |D0| + |D1|)         each added D; each multiplied D scales e1 and adds u
        e3 = L e2 + 16 u max(1, |x|)                an activation with Lipschitz constant L, evaluated in fp32
        e  = e3 + u_out (|y| + e3) + s              rounding to the output type, s its smallest number

    A gate multiplies the activation y3 by a number f, which is D0 or a second sum, known within its own e1:

        e3' = |f| e3 + (|y3| + e3) e1(f) + u |y|

    plus (K+1) 2^-126 |alpha|, since subnormal terms may be flushed, and of bf16 inputs 2^-126 |alpha| (|A|1 + 1|B|),
    since they may be flushed themselves.  tf32 inputs are fp32 numbers that are rounded to 11 bits first: with
    v = 2^-11, e0 grows by ((1 + v)^2 - 1) |alpha| |A||B|.

    Narrow sums (fp8 inputs on NVIDIA's tensor cores of capability 8.9 and 9.0, where partial sums are not moved to
    fp32 in between).  An instruction aligns 32 products and the sum so far to the largest of these 33 terms and cuts
    each term, then the result, 13 bits below it: it loses at most c = 34 2^-13 of the largest, which is at most
    |A||B| up to there and what was lost before.  K products are ceil(K/32) instructions, so e0 grows by

        ((1 + c)^ceil(K/32) - 1) |alpha| |A||B|     0.4 % of |A||B| at K = 32, 14 % at 1024, all of it from 5400 on

    That is all such kernels promise, and too little to find a wrong one.  Where every product is a whole multiple
    of one power of two q and |A||B| <= 2^13 q, nothing is cut and the bound above holds unchanged: such operands
    are what kernels with fp8 inputs are checked with (`exact` of the binding's operands).

    Integer outputs are exact up to
    the rounding of values within 1e-12 of halfway between two integers.
    """
    p = problem
    if DTYPES[p.dtype_c].kind == "int":
        return np.asarray(1e-12 * (1.0 + result.size))
    with np.errstate(all="ignore"):
        error = _sum_error(p, result, narrow_sums)
        if p.epilogue in ACTIVATIONS:
            error = after_activation(p.epilogue, result.before, error)
        if result.factor is not None:
            kind = GATES[p.epilogue]
            error = after_activation(kind, result.before, error)
            of_factor = 0.0 if result.factor_error is None else result.factor_error
            gate = np.abs(activation(kind, result.before))
            error = np.abs(result.factor) * error + (gate + error) * of_factor + U32 * np.abs(result.value)
        return after_rounding(p.dtype_c, result.value, error)


def _sum_error(p: GemmProblem, result: Exact, narrow_sums: bool) -> Array:
    """e2 of `error_bound`: how far sums may be off before an activation."""
    terms = 4 if DTYPES[p.dtype_a].kind == "int" else p.k + 3
    part = gamma(terms) + (narrow_part(p.k) if narrow_sums else 0.0)
    if p.dtype_a == "tf32":
        part += (1 + DTYPES["tf32"].unit_roundoff) ** 2 - 1
    error = part * result.products + (3 + p.num_d) * U32 * result.size
    return np.asarray(error + TINY32 * result.flushed)


def reference(problem: GemmProblem, arrays: Mapping[str, Any]) -> Array:
    """The GEMM computed in float64 and rounded once to the output type."""
    return round_to(exact(problem, arrays).value, problem.dtype_c)


def judgement(problem: GemmProblem, arrays: Mapping[str, Any], narrow_sums: bool = False) -> Callable[[Any], Check]:
    """The reference, computed now, to compare any number of results with."""
    rows = sampled_rows(problem.m, max(1.0, float(problem.flops)), FULL_CHECK_FLOPS)
    expected = exact(problem, arrays, rows)
    bound = error_bound(problem, expected, narrow_sums)
    compared = Comparison(expected.value, bound, problem.dtype_c, expected.size)
    return lambda result: compared(np.asarray(result)[..., rows, :])


def verify(problem: GemmProblem, arrays: Mapping[str, Any], result: Any, narrow_sums: bool = False) -> Check:
    """Compare a result with the reference: NaN and infinity in the same places, the rest within its bound."""
    return judgement(problem, arrays, narrow_sums)(result)
