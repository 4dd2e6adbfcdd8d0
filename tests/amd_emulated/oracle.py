"""What kernels that sum products must give, from the bits of their operands: in float64, from scratch.

Nothing here comes from the product, so that no mistake can be on both sides.  An op makes its `Sums` by its own
definition (`product` below is that of a GEMM); what is done to sums, and how results are judged, is the same for all.

How far from the float64 value a right element may be.  With u = 2^-24, S the sum of the products' sizes (of a GEMM
|A||B|) and k products a sum:

1. Products of two-byte and one-byte floats have at most 22 significant bits: exact in fp32.  Those of fp32 are
   rounded once.  A sum of k terms in fp32, in any order and in any parts, makes at most k - 1 roundings on the way
   of each term, so it is off by at most ((1+u)^k - 1) S <= 1.01 k u S for all k below 10^5.
2. alpha is rounded to fp32, and so is its product; beta likewise, and the sum of both: 2 + 3 roundings of what is
   there:  e1 = 1.01 (k + 3) u |alpha| S + 3.03 u (|alpha| S + |beta C|).
3. Each added D is one more rounding of the sum: + 1.01 u (size of all that was added).  Each multiplied D is one
   rounding and scales everything before by |D|.
4. An activation of slope at most L turns e into L e; its own evaluation in fp32 is allowed 16 u max(1, |x|): a few
   roundings of exp, erfc or tanh and of their arguments.
5. The result is rounded to the output's type once: half a unit in the last place of what it has, at most
   u_out (|y| + e), or half of the smallest subnormal number where that is more.
6. Numbers below 2^-126 may be taken for 0 in fp32: (k + 2) 2^-126 |alpha|, scaled by multiplied Ds.

Where all products are whole multiples of one number and S is below 2^24 of them, step 1 is exact and nothing is
allowed for it.  Sums of int8 products are exact: for S stands their size, and step 1 is one rounding, to fp32.

Results in int8 and int32 are the float64 value rounded to the nearest whole number, the even one of two, and held
inside the type's range; values within 1e-12 of their size of halfway may go either way, and behind an activation
within what step 4 allows.

Not finite: an element is NaN exactly where the float64 value is, and infinite where that is, or where rounding makes
it so.  Where the sizes of what is added come near the end of fp32, parts of the sum may leave it: such elements are
open, and so are sums of int8 products that leave int32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.amd_emulated.number_formats import FORMATS, Array, Format, decode

U = 2.0**-24
TINY = 2.0**-126
MOST = FORMATS["fp32"].largest * (1 - 2.0**-10)  # parts of a sum are at most its size, and what was rounded up
SLOPES = {"Relu": 1.0, "Gelu": 1.13, "FastGelu": 1.13, "Silu": 1.1, "Sigmoid": 0.25, "Tanh": 1.0}


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of products, in the shape of the result."""

    value: Array
    sizes: Array  # sums of the products' sizes; of whole numbers the size of the sum
    count: int  # products a sum, at most
    whole: bool  # products of integers
    exact: bool  # no order of additions rounds
    open: Array | bool = False  # sums of which nothing is promised


@dataclass(frozen=True, slots=True)
class After:
    """What happens to sums: epilogue(alpha sum + beta C, D0, D1), rounded once.  C and Ds are bits that broadcast."""

    of: Format  # of the result and C
    format_d: Format
    c: Array | None = None
    ds: Sequence[Array] = ()
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str = "PassThrough"


@dataclass(slots=True)
class Expected:
    value: Array
    bound: Array  # before the last rounding
    open: Array  # elements of which nothing is promised
    of: Format


@dataclass(slots=True)
class Judgement:
    ok: bool
    largest_error: float = 0.0
    of_bound: float = 0.0  # the largest share of its bound
    detail: str = ""
    open: int = 0


def product(a: Array, format_a: Format, b: Array, format_b: Format) -> Sums:
    """A GEMM's sums, from matrices of bits, batch first."""
    with np.errstate(all="ignore"):
        left, right = decode(a, format_a), decode(b, format_b)
        total, whole = np.matmul(left, right), format_a.is_int
        sizes = np.abs(total) if whole else np.matmul(finite(left), finite(right))
        return Sums(total, sizes, left.shape[-1], whole, not whole and exact(left, right, sizes))


def expected(sums: Sums, after: After) -> Expected:
    with np.errstate(all="ignore"):
        return _expected(sums, after)


def _expected(sums: Sums, after: After) -> Expected:
    alpha, beta, k = float(after.alpha), float(after.beta), sums.count
    lost = sums.open | (sums.sizes > (2.0**31 - 1 if sums.whole else MOST))
    x, size = alpha * sums.value, abs(alpha) * sums.sizes
    slip = 1.01 * U if sums.whole else 0.0 if sums.exact else 1.01 * (k + 3) * U
    error = slip * size + 3.03 * U * (0.0 if alpha == 1 and not beta else 1.0) * size + (k + 2) * TINY * abs(alpha)
    # The float64 product itself is not exact.
    error = error + 2.0**-50 * size
    if beta:
        assert after.c is not None
        c = decode(after.c, after.of)
        x, size = x + beta * c, size + np.abs(beta) * finite(c)
        error = error + 3.03 * U * abs(beta) * finite(c)
    most = size
    for one in after.ds:
        d = decode(one, after.format_d)
        if after.epilogue == "MultiDMultiply":
            x, size, error = x * d, size * finite(d), (error + 1.01 * U * size) * finite(d)
        else:
            x, size = x + d, size + finite(d)
            error = error + 1.01 * U * size
        most = np.maximum(most, size)
    if after.of.is_int:
        error = 1e-12 * (1.0 + size)
    if after.epilogue in SLOPES:
        error = SLOPES[after.epilogue] * error + 16 * U * np.maximum(1.0, np.abs(x))
        x = _activated(after.epilogue, x)
    shape = np.broadcast_shapes(x.shape, size.shape)
    left = lost | ((most > MOST) & (not after.of.is_int))
    whole_x, whole_error, whole_left = (np.broadcast_to(one, shape) for one in (x, error, left))
    return Expected(whole_x, whole_error, whole_left, after.of)


def judge(found: Expected, bits: Array) -> Judgement:
    """Every element of a result against its bound; the sentence names the worst."""
    given, of = decode(bits, found.of), found.of
    value, slip, loose = (np.broadcast_to(one, given.shape) for one in (found.value, found.bound, found.open))
    with np.errstate(all="ignore"):
        lowered = np.abs(value) - slip
        rounding = 0.0 if of.is_int else of.roundoff * (np.abs(value) + slip) + of.smallest / 2
        bound = slip + rounding
        error = np.abs(given - value)
        if of.is_int:
            end = 2.0 ** (8 * of.bytes - 1)
            low, high = (np.clip(np.rint(one), -end, end - 1) for one in (value - slip, value + slip))
            error = np.maximum(np.maximum(low - given, given - high), 0.0)
        ratio = np.where(error == 0, 0.0, error / bound)
        # Rounding ends at half a unit above the largest number; what may lie on both sides may be either.
        end = 0.0 if of.is_int else of.largest + 2.0 ** (of.last - of.bias - of.mantissa - 1)
        infinite = np.isinf(given) & (np.sign(given) == np.sign(value))
        over = np.isfinite(value) & (np.abs(value) + slip >= end) & (not of.is_int)
        ratio = np.where(over & infinite, 0.0, ratio)
        ratio = np.where(over & ~infinite & (lowered > end), np.inf, ratio)
        same = (np.isnan(value) & np.isnan(given)) | (value == given)
        ratio = np.where(np.isfinite(value) | of.is_int, ratio, np.where(same, 0.0, np.inf))
        ratio = np.where(loose, 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    opened = int(np.count_nonzero(loose))
    if not ratio.size:
        return Judgement(True)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    top = float(ratio[worst])
    if top <= 1.0:
        inside = np.where(loose | ~np.isfinite(error), 0.0, error)
        return Judgement(True, float(inside.max()), top, "", opened)
    wrong = int(np.count_nonzero(ratio > 1.0))
    where = tuple(int(one) for one in worst)
    return Judgement(
        False,
        float(error[worst]),
        top,
        f"element {where} is {given[worst]:.9g}, expected {value[worst]:.9g} within {bound[worst]:.3g}; "
        f"{wrong} of {ratio.size} are wrong",
        opened,
    )


def finite(x: Array) -> Array:
    """Sizes of numbers; 0 of what is infinite or NaN."""
    return np.abs(np.where(np.isfinite(x), x, 0.0))


def exact(a: Array, b: Array, sizes: Array) -> bool:
    """Whether every product is a whole multiple of one number, and no sum of sizes reaches 2^24 of them."""
    grain = 1.0
    for one in (a, b):
        step = _grain(finite(one))
        if not step:
            return False
        grain *= step
    return bool(sizes.size == 0 or sizes.max() <= 2.0**24 * grain)


def _grain(sizes: Array) -> float:
    """The largest power of two from 2^-40 on that divides all of them; 0 where none does, 1 where all are 0."""
    held = sizes[sizes > 0]
    if not held.size:
        return 1.0
    if held.min() < 2.0**-40 or held.max() >= 2.0**20:
        return 0.0
    whole = np.ldexp(held, 40)
    if (whole != np.floor(whole)).any():
        return 0.0
    joined = int(np.bitwise_or.reduce(whole.astype(np.int64)))
    return math.ldexp(joined & -joined, -40)


def _activated(name: str, x: Array) -> Array:
    """At minus infinity Silu and both Gelus have their limit, 0."""
    low = x == -np.inf
    inner = np.where(low, -1e4, x)
    logistic = 1.0 / (1.0 + np.exp(-inner))
    if name == "Relu":
        return np.where(x < 0, 0.0, x)
    if name == "Sigmoid":
        return np.where(low, 0.0, logistic)
    if name == "Tanh":
        return np.tanh(x)
    if name == "Silu":
        found = inner * logistic
    elif name == "Gelu":
        normal = [0.5 * math.erfc(-one / math.sqrt(2)) for one in inner.ravel().tolist()]
        found = inner * np.array(normal).reshape(inner.shape)
    else:
        found = 0.5 * inner * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    return np.where(low, 0.0, found)
