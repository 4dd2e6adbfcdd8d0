"""What a GEMM should give, in float64, and how far from it a kernel may be.

The one statement of error bounds is the docstring of `error_bound`; tests, measurements and the
command line all judge results by `verify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import ACTIVATIONS

Array = np.ndarray[Any, np.dtype[Any]]

U32 = DTYPES["fp32"].unit_roundoff
TINY32 = 2.0**-126  # below it fp32 loses digits, and some dot instructions flush to zero
LARGEST = {"fp32": float(np.finfo(np.float32).max), "fp16": 65504.0, "bf16": 3.3895313892515355e38}
SMALLEST = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
INT_RANGE = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}

# |f(x) - f(y)| <= L |x - y|
LIPSCHITZ = {"Relu": 1.0, "Gelu": 1.13, "FastGelu": 1.13, "Silu": 1.1, "Sigmoid": 0.25, "Tanh": 1.0}
# Roundings allowed to a kernel's own evaluation of an activation, in units of U32 * max(1, |x|).
ACTIVATION_ULPS = 16.0
# fp8 on tensor cores of capability 8.9 and 9.0: products of one instruction, and bits below the largest that count.
NARROW_TERMS, NARROW_BITS = 32, 13
# Rows of a large problem are sampled: two float64 products of this many operations take a fraction of a second.
FULL_CHECK_FLOPS = 4e9


@lru_cache(maxsize=1)
def _erf_table() -> Array:
    """Chebyshev coefficients of erf on 24 pieces of [0, 6], from the exact function at the nodes."""
    pieces = []
    for index in range(24):
        middle = 0.25 * index + 0.125

        def piece(t: Any, middle: float = middle) -> Any:
            return np.array([math.erf(middle + 0.125 * float(one)) for one in t])

        pieces.append(np.polynomial.chebyshev.chebinterpolate(piece, 14))
    return np.array(pieces).T


def erf(x: Array) -> Array:
    """erf of a float64 array to a few 1e-15; NaN stays NaN."""
    size = np.minimum(np.abs(x), 5.9999999)
    index = np.where(np.isnan(size), 0, size * 4.0).astype(np.int64)
    t = (size - (0.25 * index + 0.125)) * 8.0
    table = _erf_table()
    older, old = np.zeros_like(t), np.zeros_like(t)
    for row in table[:0:-1]:
        older, old = old, row[index] + 2.0 * t * old - older
    value = table[0][index] + t * old - older
    return np.copysign(np.where(np.abs(x) >= 5.9999999, 1.0, value), x)


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _silu(x: Array) -> Array:
    return np.where(x == -np.inf, 0.0, x * _sigmoid(x))


def _gelu(x: Array) -> Array:
    return np.where(x == -np.inf, 0.0, 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))))


def _fast_gelu(x: Array) -> Array:
    return np.where(x == -np.inf, 0.0, 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))


# At minus infinity Silu and both Gelus have the limit 0, not the NaN of a literal -inf * 0.
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Relu": lambda x: np.maximum(x, 0.0),  # NaN stays NaN
    "Gelu": _gelu,
    "FastGelu": _fast_gelu,
    "Silu": _silu,
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
}


def activation(name: str, x: Array) -> Array:
    """An activation in float64."""
    with np.errstate(all="ignore"):
        return _FUNCTIONS[name](x)


@dataclass(frozen=True, slots=True)
class Exact:
    """The result before its last rounding, and what the bound needs."""

    value: Array  # float64
    before: Array  # what went into the activation
    size: Array  # |alpha| |A||B| + |beta| |C| + |D| ..., the size of what was summed
    products: Array  # |alpha| |A||B| (int8: |alpha| |A.B|), scaled by multiplied Ds
    scaled: Array | float  # |D0 D1| of MultiDMultiply, else 1


def exact(problem: GemmProblem, arrays: Mapping[str, Any], rows: Array | slice = slice(None)) -> Exact:
    """The GEMM in float64 (sums of int8 products are exact there), without rounding to the output type.

    `arrays` holds a (.., m, k), b (.., k, n), c or None, ds, alpha, beta; batches broadcast.
    """
    with np.errstate(all="ignore"):
        a = np.asarray(arrays["a"])[..., rows, :].astype(np.float64)
        b = np.asarray(arrays["b"]).astype(np.float64)
        alpha, beta = float(arrays["alpha"]), float(arrays["beta"])
        total: Array = a @ b
        if DTYPES[problem.dtype_a].kind == "int":
            total = (total.astype(np.int64) + 2**31) % 2**32 - 2**31  # int32 sums wrap
            sizes = np.abs(total).astype(np.float64)
        else:
            sizes = np.abs(a) @ np.abs(b)
        x = alpha * total.astype(np.float64)
        products = abs(alpha) * sizes
        size = products
        if beta != 0:
            c = np.asarray(arrays["c"])[..., rows, :].astype(np.float64)
            x = x + beta * c
            size = size + np.abs(beta * c)
        scaled: Array | float = 1.0
        for one in arrays["ds"]:
            d = _rows_of(np.asarray(one), rows, problem.m).astype(np.float64)
            if problem.epilogue == "MultiDMultiply":
                x, scaled = x * d, scaled * np.abs(d)
            else:
                x, size = x + d, size + np.abs(d)
        value = activation(problem.epilogue, x) if problem.epilogue in ACTIVATIONS else x
        return Exact(value, x, size * scaled, products * scaled, scaled)


def _rows_of(d: Array, rows: Array | slice, m: int) -> Array:
    """The wanted rows of a D that may be a vector or have one row."""
    return d[..., rows, :] if d.ndim > 1 and d.shape[-2] == m and m != 1 else d


def _gamma(n: int) -> float:
    return n * U32 / (1.0 - n * U32) if n * U32 < 0.5 else n * U32 * 2


def _narrow(k: int) -> float:
    """What narrow sums of k products may lose, as a part of |A||B|."""
    lost = (NARROW_TERMS + 2) * 2.0**-NARROW_BITS
    return float(math.expm1(-(-k // NARROW_TERMS) * math.log1p(lost)))


def error_bound(problem: GemmProblem, found: Exact, narrow_sums: bool = False) -> Array:
    """How far each element of a right result may be from `found.value`.

    Float outputs.  With u = 2^-24 and gamma_n = n u / (1 - n u), a sum of K products in fp32, in any
    order, is within gamma_K |A||B| of the true one; rounding the products, alpha and its product adds
    three more factors (1 + u), so

        e0 = gamma_{K+3} |alpha| |A||B|            (int8 inputs: the sum is exact, so gamma_4 |alpha A.B|)
        e1 = e0 + 3 u (|alpha| |A||B| + |beta C|)   beta's rounding, its product, the addition
        e2 = e1 + n_D u (... + |D0| + |D1|)         each added D; each multiplied D scales e1 and adds u
        e3 = L e2 + 16 u max(1, |x|)                an activation with Lipschitz constant L, evaluated in fp32
        e  = e3 + u_out (|y| + e3) + s              rounding to the output type, s its smallest number

    plus (K+1) 2^-126 |alpha|, since subnormal terms may be flushed.  tf32 inputs are fp32 numbers that are rounded to
    11 bits first: with v = 2^-11, e0 grows by ((1 + v)^2 - 1) |alpha| |A||B|.

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
        return np.asarray(1e-12 * (1.0 + found.size))
    terms = 4 if DTYPES[p.dtype_a].kind == "int" else p.k + 3
    with np.errstate(all="ignore"):
        part = _gamma(terms) + (_narrow(p.k) if narrow_sums else 0.0)
        if p.dtype_a == "tf32":
            part += (1 + DTYPES["tf32"].unit_roundoff) ** 2 - 1
        error = part * found.products + (3 + p.num_d) * U32 * found.size
        error = error + (p.k + 1) * TINY32 * found.scaled
        if p.epilogue in ACTIVATIONS:
            error = LIPSCHITZ[p.epilogue] * error + ACTIVATION_ULPS * U32 * np.maximum(1.0, np.abs(found.before))
        last = DTYPES[p.dtype_c].unit_roundoff
        return np.asarray(error + last * (np.abs(found.value) + error) + SMALLEST[p.dtype_c])


def round_to(values: Array, dtype: str) -> Array:
    """float64 to an output type: floats to nearest, integers to nearest even and clamped, NaN to 0."""
    from ml_dtypes import bfloat16

    if dtype in INT_RANGE:
        low, high = INT_RANGE[dtype]
        whole = np.rint(np.nan_to_num(values, nan=0.0, posinf=high, neginf=low))
        clamped: Array = np.clip(whole, low, high).astype(dtype)
        return clamped
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        return single if dtype == "fp32" else single.astype(np.float16 if dtype == "fp16" else bfloat16)


def reference(problem: GemmProblem, arrays: Mapping[str, Any]) -> Array:
    """The GEMM computed in float64 and rounded once to the output type."""
    return round_to(exact(problem, arrays).value, problem.dtype_c)


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome of a comparison; `bound_ratio` is the largest error over its bound, at most 1 when ok."""

    ok: bool
    max_error: float
    bound_ratio: float
    detail: str = ""  # where it is worst, when not ok
    rows_checked: int = 0

    def __bool__(self) -> bool:
        return self.ok


def _sample(problem: GemmProblem) -> Array | slice:
    """All rows of a small problem; of a large one the first, the last and random ones between."""
    cost = max(1.0, float(problem.flops))
    if cost <= FULL_CHECK_FLOPS or problem.m <= 64:
        return slice(None)
    count = max(64, int(problem.m * FULL_CHECK_FLOPS / cost))
    inner = np.random.default_rng(problem.m).integers(0, problem.m, count)
    edges = np.concatenate([np.arange(16), np.arange(problem.m - 16, problem.m)])
    return np.unique(np.concatenate([inner, edges]))


def verify(problem: GemmProblem, arrays: Mapping[str, Any], result: Array, narrow_sums: bool = False) -> Check:
    """Compare a result with the reference: NaN and infinity in the same places, the rest within its bound."""
    rows = _sample(problem)
    found = exact(problem, arrays, rows)
    given = np.asarray(result)[..., rows, :].astype(np.float64)
    if given.shape != np.broadcast_shapes(given.shape, found.value.shape):
        return Check(False, math.inf, math.inf, f"result of shape {given.shape}, expected {found.value.shape}")
    value = np.broadcast_to(found.value, given.shape)
    bound = np.broadcast_to(error_bound(problem, found, narrow_sums), given.shape)
    if given.size == 0:
        return Check(True, 0.0, 0.0)
    checked = given.shape[-2]
    with np.errstate(all="ignore"):
        if problem.dtype_c in INT_RANGE:
            low = round_to(value - bound, problem.dtype_c).astype(np.float64)
            high = round_to(value + bound, problem.dtype_c).astype(np.float64)
            error = np.maximum(np.maximum(low - given, given - high), 0.0)
            ratio = np.where(error > 0, np.inf, 0.0)
        else:
            error, ratio = _float_errors(problem, found, value, bound, given)
    worst = int(np.argmax(ratio))
    place = np.unravel_index(worst, given.shape)
    top = float(ratio.flat[worst])
    ok = top <= 1.0
    finite = error[np.isfinite(error)]
    most = float(finite.max()) if finite.size else 0.0
    detail = ""
    if not ok:
        where = tuple(int(one) for one in place)
        detail = (
            f"element {where} is {given[place]!r}, expected {value[place]!r} within {bound[place]:.3g}; "
            f"{int(np.count_nonzero(~(ratio <= 1.0)))} of {ratio.size} elements are wrong"
        )
        most = max(most, math.inf if math.isinf(top) else most)
    return Check(ok, most, top, detail, checked)


def _float_errors(problem: GemmProblem, found: Exact, value: Array, bound: Array, given: Array) -> tuple[Array, Array]:
    largest = LARGEST[problem.dtype_c]
    plain = np.isfinite(value) & np.isfinite(bound)
    error = np.where(plain, np.abs(given - value), 0.0)
    ratio = error / np.maximum(bound, np.finfo(np.float64).tiny)
    # Too large for the output: infinity of the right sign, or the largest number, is what rounding gives.
    over = plain & (np.abs(value) + bound > largest)
    right_side = (np.sign(given) == np.sign(value)) & (np.abs(given) >= largest * (1 - 2**-7))
    ratio = np.where(over & ((ratio <= 1.0) | right_side), np.minimum(ratio, 1.0), ratio)
    error = np.where(over & ~np.isfinite(error), 0.0, error)
    # Not finite: the same NaN or infinity, element for element.
    same = (np.isnan(value) & np.isnan(given)) | (value == given)
    ratio = np.where(~np.isfinite(value), np.where(same, 0.0, np.inf), ratio)
    ratio = np.where(plain & np.isnan(given), np.inf, ratio)
    # Sums that may leave fp32 on the way promise nothing.
    lost = np.isfinite(found.size) & (np.broadcast_to(found.size, value.shape) > LARGEST["fp32"] / 4)
    return np.where(lost, 0.0, error), np.where(lost, 0.0, ratio)
