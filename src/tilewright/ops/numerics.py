"""What every op needs to say what is right: float64 functions, rounding, pieces of an error bound, and the comparison.

An op's reference gives values in float64, before their last rounding, and a bound for each; `compare` judges a result
by them.  The pieces of bounds:

    u = 2^-24                 the largest relative error of rounding to fp32
    gamma(n) = n u / (1 - n u)    what n roundings in a row may come to: a sum of n products in fp32, in any order, is
                              within gamma(n) times the sum of their sizes
    after_activation          an activation with Lipschitz constant L, evaluated in fp32: L e + 16 u max(1, |x|)
    after_rounding            rounding to the output type: e + u_out (|y| + e) + s, s its smallest number
    narrow_part(n)            what sums of n products may lose on units that do not add in fp32 (see there)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]

U32 = DTYPES["fp32"].unit_roundoff
TINY32 = 2.0**-126  # below it fp32 loses digits, and some dot instructions flush to zero
LARGEST = {"fp32": float(np.finfo(np.float32).max), "fp16": 65504.0, "bf16": 3.3895313892515355e38,
           "fp8_e4m3": 448.0, "fp8_e4m3fnuz": 240.0}  # fmt: skip
SMALLEST = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133, "fp8_e4m3": 2.0**-9, "fp8_e4m3fnuz": 2.0**-10}
INT_RANGE = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}

# |f(x) - f(y)| <= L |x - y|
LIPSCHITZ = {"Relu": 1.0, "Gelu": 1.13, "FastGelu": 1.13, "Silu": 1.1, "Sigmoid": 0.25, "Tanh": 1.0}
# Roundings allowed to a kernel's own evaluation of an activation, in units of U32 * max(1, |x|).
ACTIVATION_ULPS = 16.0
# fp8 on tensor cores of capability 8.9 and 9.0: products of one instruction, and bits below the largest that count.
NARROW_TERMS, NARROW_BITS = 32, 13


# -- functions in float64 ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _erf_table() -> Array:
    """Chebyshev coefficients of erf on 24 pieces of [0, 6], from the exact function at the nodes."""
    pieces = []
    for index in range(24):
        middle = 0.25 * index + 0.125

        def piece(t: Any, middle: float = middle) -> Any:
            return np.array([math.erf(middle + 0.125 * float(point)) for point in t])

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
    """An activation of `ops.fused` in float64."""
    with np.errstate(all="ignore"):
        return _FUNCTIONS[name](x)


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


# -- pieces of error bounds --------------------------------------------------------------------------------------------


def gamma(n: int) -> float:
    """What n roundings to fp32 in a row may come to, relative to the sizes of what was summed."""
    return n * U32 / (1.0 - n * U32) if n * U32 < 0.5 else n * U32 * 2


def narrow_part(n: int) -> float:
    """What narrow sums of n products may lose, as a part of the sum of their sizes.

    An instruction aligns 32 products and the sum so far to the largest of these 33 terms and cuts each term, then the
    result, 13 bits below it: it loses at most c = 34 2^-13 of the largest, which is at most the sum of sizes up to
    there and what was lost before.  n products are ceil(n/32) instructions: (1 + c)^ceil(n/32) - 1.
    """
    lost = (NARROW_TERMS + 2) * 2.0**-NARROW_BITS
    return float(math.expm1(-(-n // NARROW_TERMS) * math.log1p(lost)))


def after_activation(name: str, before: Array, error: Array) -> Array:
    """The bound behind an activation of `before`, known within `error`."""
    return np.asarray(LIPSCHITZ[name] * error + ACTIVATION_ULPS * U32 * np.maximum(1.0, np.abs(before)))


def after_rounding(dtype: str, value: Array, error: Array) -> Array:
    """The bound of `value`, known within `error`, once it is rounded to a float type."""
    return np.asarray(error + DTYPES[dtype].unit_roundoff * (np.abs(value) + error) + SMALLEST[dtype])


# -- comparing ---------------------------------------------------------------------------------------------------------


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


_CHUNK = 1 << 15  # elements that are looked at together: what is worked out of them stays in the cache


class Comparison:
    """Results of an output type beside float64 values and their bounds, both broadcast to the shape of a result.

    NaN and infinity must be in the same places, the rest within its bound.  `size` is the size of what was summed:
    sums that may overflow fp32 in between promise nothing.
    """

    def __init__(self, value: Array, bound: Array, dtype: str, size: Array | None = None) -> None:
        self._value, self._bound, self._dtype, self._size = value, bound, dtype, size
        with np.errstate(all="ignore"):
            self._leaves = size is not None and not np.max(size, initial=0.0) <= LARGEST["fp32"] / 4  # NaN is not
            top = 0.0 if dtype in INT_RANGE else float(np.max(np.abs(value) + bound, initial=0.0))
        self._plain = dtype not in INT_RANGE and not self._leaves and top <= LARGEST[dtype]
        self._floor = np.maximum(bound, np.finfo(np.float64).tiny) if self._plain else bound

    def __call__(self, result: Any) -> Check:
        array = np.asarray(result)
        try:
            value, bound = np.broadcast_to(self._value, array.shape), np.broadcast_to(self._bound, array.shape)
        except ValueError:
            return Check(False, math.inf, math.inf, f"result of shape {array.shape}, expected {self._value.shape}")
        if array.size == 0:
            return Check(True, 0.0, 0.0)
        with np.errstate(all="ignore"):
            if self._plain:
                most, top = _most_errors(array, value, np.broadcast_to(self._floor, array.shape))
                if top <= 1.0 and math.isfinite(most):
                    return Check(True, most, top, "", _rows(array))
            values = array.astype(np.float64)
            error, ratio = self._errors(values, value, bound)
        return _verdict(values, value, bound, error, ratio)

    def _errors(self, values: Array, value: Array, bound: Array) -> tuple[Array, Array]:
        """The error of each element, and its part of the bound."""
        if self._dtype in INT_RANGE:
            low = round_to(value - bound, self._dtype).astype(np.float64)
            high = round_to(value + bound, self._dtype).astype(np.float64)
            error = np.maximum(np.maximum(low - values, values - high), 0.0)
            return error, np.where(error > 0, np.inf, 0.0)
        error, ratio = _float_errors(values, value, bound, LARGEST[self._dtype])
        if self._leaves:
            size = np.broadcast_to(np.asarray(self._size), value.shape)
            lost = np.isfinite(size) & (size > LARGEST["fp32"] / 4)
            error, ratio = np.where(lost, 0.0, error), np.where(lost, 0.0, ratio)
        return error, ratio


def compare(result: Any, value: Array, bound: Array, dtype: str, size: Array | None = None) -> Check:
    """Judge one result; who has several to judge keeps a `Comparison`."""
    return Comparison(value, bound, dtype, size)(result)


def _most_errors(result: Array, value: Array, floor: Array) -> tuple[float, float]:
    """The largest error and the largest part of a bound, where values and bounds are finite; NaN where a result is.

    A sweep asks this of every kernel: line by line, so that little of it leaves the cache.
    """
    width = result.shape[-1] if result.ndim else 1
    flat, exact, limit = (each.reshape(-1, width) for each in (result, value, floor))
    lines = max(1, _CHUNK // width)
    most = top = 0.0
    for first in range(0, len(flat), lines):
        apart = flat[first : first + lines].astype(np.float64)
        apart -= exact[first : first + lines]
        np.abs(apart, out=apart)
        here = float(apart.max())
        apart /= limit[first : first + lines]
        part = float(apart.max())
        if not (math.isfinite(here) and part <= 1.0):
            return here, part
        most, top = max(most, here), max(top, part)
    return most, top


def _rows(result: Array) -> int:
    return int(result.shape[-2] if result.ndim > 1 else result.size)


def _verdict(result: Array, value: Array, bound: Array, error: Array, ratio: Array) -> Check:
    worst = int(np.argmax(ratio))
    place = np.unravel_index(worst, result.shape)
    top = float(ratio.flat[worst])
    most = float(np.max(error))
    if not math.isfinite(most):
        finite = error[np.isfinite(error)]
        most = float(finite.max()) if finite.size else 0.0
    if top <= 1.0:
        return Check(True, most, top, "", _rows(result))
    wrong = int(np.count_nonzero(~(ratio <= 1.0)))
    detail = (
        f"element {tuple(int(index) for index in place)} is {float(result[place])!r}, expected {float(value[place])!r} "
        f"within {bound[place]:.3g}; {wrong} of {ratio.size} elements are wrong"
    )
    return Check(False, math.inf if math.isinf(top) else most, top, detail, _rows(result))


def _float_errors(result: Array, value: Array, bound: Array, largest: float) -> tuple[Array, Array]:
    """The error of each element, and its part of the bound."""
    apart, floor = np.abs(result - value), np.maximum(bound, np.finfo(np.float64).tiny)
    plain = np.isfinite(value) & np.isfinite(bound)
    error = np.where(plain, apart, 0.0)
    ratio = error / floor
    # Too large for the output: infinity of the right sign, or the largest number, is what rounding gives.
    over = plain & (np.abs(value) + bound > largest)
    right_side = (np.sign(result) == np.sign(value)) & (np.abs(result) >= largest * (1 - 2**-7))
    ratio = np.where(over & ((ratio <= 1.0) | right_side), np.minimum(ratio, 1.0), ratio)
    error = np.where(over & ~np.isfinite(error), 0.0, error)
    # Not finite: the same NaN or infinity, element for element.
    same = (np.isnan(value) & np.isnan(result)) | (value == result)
    ratio = np.where(~np.isfinite(value), np.where(same, 0.0, np.inf), ratio)
    ratio = np.where(plain & np.isnan(result), np.inf, ratio)
    return error, ratio


def sampled_rows(rows: int, cost: float, limit: float, at_least: int = 64) -> Array | slice:
    """All rows where checking them costs no more than `limit`; else the first, the last and random ones between."""
    if cost <= limit or rows <= at_least:
        return slice(None)
    count = max(at_least, int(rows * limit / cost))
    inner = np.random.default_rng(rows).integers(0, rows, count)
    edge = min(16, rows)
    edges = np.concatenate([np.arange(edge), np.arange(rows - edge, rows)])
    return np.unique(np.concatenate([inner, edges]))
