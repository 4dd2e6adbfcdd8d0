"""The numbers of a call, in float64, and how far from them a right answer may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.memory import Floats
from tests.fuzz.oddities import ACTIVATIONS

U32 = 2.0**-24
TINY = 2.0**-126
LARGEST = {"fp32": 3.4028234663852886e38, "fp16": 65504.0, "bf16": 3.3895313892515355e38}
ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
RANGE = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
LIPSCHITZ = {"Relu": 1.0, "Gelu": 1.13, "FastGelu": 1.13, "Silu": 1.1, "Sigmoid": 0.25, "Tanh": 1.0}


@dataclass
class Terms:
    """What is computed: epilogue(alpha a.b + beta c, d0, d1), of a shape and in an element type."""

    a: Floats  # at least two dimensions
    b: Floats
    c: Floats | None
    ds: list[Floats]
    alpha: float
    beta: float
    epilogue: str
    flushes: bool  # a dot product of pairs takes subnormal inputs for 0
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Numbers:
    value: Floats
    bound: Floats
    open: np.ndarray[Any, Any]  # elements of which nothing is promised: they may leave fp32 on the way


def numbers(given: Terms) -> Numbers:
    """The values and their bounds.

    A sum of k products in fp32, in any order, is within k u of the sum of their sizes; alpha, beta, C, each D and their
    roundings add some more.  The bound is generous by a small factor, and grows by the activation's slope.
    """
    shape, single = given.shape, given.dtype not in RANGE
    if 0 in shape:
        return Numbers(np.zeros(shape), np.zeros(shape), np.zeros(shape, bool))
    with np.errstate(all="ignore"):
        alpha, beta = (float(np.float32(one)) if single else float(one) for one in (given.alpha, given.beta))
        sums = _sums(given, alpha, beta)
        lost = sums.lost | ((sums.most > LARGEST["fp32"] / 4) if single else sums.most > 2.0**31)  # of int8, may wrap
        for meant, rounded in ((given.alpha, alpha), (given.beta, beta)):
            if single and meant and math.isfinite(meant) and not 2.0**-120 <= abs(rounded) < math.inf:
                lost = np.ones(shape, bool)  # a factor that fp32 does not have
        value = sums.total
        bound = 2 * (given.a.shape[-1] + 12) * U32 * sums.size + sums.tiny
        if given.epilogue in ACTIVATIONS:
            if single:
                bound = LIPSCHITZ[given.epilogue] * bound + 32 * U32 * np.maximum(1.0, np.abs(value))
            value = _activated(given.epilogue, value)
        if single:
            bound = bound + ROUNDOFF[given.dtype] * (np.abs(value) + bound) * 1.01 + SMALLEST[given.dtype]
    return Numbers(value, bound, lost)


@dataclass
class _Sums:
    """What goes into the activation."""

    total: Floats
    size: Floats  # of what was summed
    most: Floats  # the largest size of all that is finite on the way
    tiny: Floats  # what is lost where numbers below 2^-126 are taken for 0
    lost: np.ndarray[Any, Any]


def _sums(given: Terms, alpha: float, beta: float) -> _Sums:
    a, b, shape = given.a, given.b, given.shape

    def whole(x: Any) -> Floats:
        return np.broadcast_to(x, shape)

    total, size = whole(alpha * np.matmul(a, b)), whole(abs(alpha) * np.matmul(np.abs(a), np.abs(b)))
    finite = whole(max(1.0, abs(alpha)) * np.matmul(_finite(a), _finite(b)))
    tiny = whole((a.shape[-1] + 2) * TINY * max(1.0, abs(alpha)))
    lost = np.zeros(shape, bool)
    if given.flushes:
        rows, columns = np.abs(a).sum(-1)[..., None], np.abs(b).sum(-2)[..., None, :]
        tiny = tiny + TINY * max(1.0, abs(alpha)) * (rows + columns)
        lost = lost | np.isnan(np.matmul(_flushed(a), _flushed(b)))  # 0 times infinity
    if given.beta != 0:
        assert given.c is not None
        c = whole(given.c)
        total, size = total + beta * c, size + np.abs(beta * c)
        finite = finite + max(1.0, abs(beta)) * _finite(c)
        tiny = tiny + TINY * max(1.0, abs(beta))
    most = finite
    for one in map(whole, given.ds):
        if given.epilogue == "MultiDMultiply":
            total, size, finite = total * one, size * np.abs(one), finite * _finite(one)
            tiny = tiny * np.maximum(1.0, _finite(one))
        else:
            total, size, finite = total + one, size + np.abs(one), finite + _finite(one)
        most = np.maximum(most, finite)
    return _Sums(total, size, most, tiny, lost)


def _flushed(x: Floats) -> Floats:
    return np.where(np.abs(x) < TINY, 0.0, x)


def _finite(x: Floats) -> Floats:
    return np.abs(np.where(np.isfinite(x), x, 0.0))


def _erf(x: Floats) -> Floats:
    return np.array([math.erf(one) for one in x.ravel().tolist()]).reshape(x.shape)


def _activated(name: str, x: Floats) -> Floats:
    """At minus infinity Silu and both Gelus have their limit, 0."""
    low = x == -np.inf
    x = np.where(low, -1e4, x)
    with np.errstate(all="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
        ways: dict[str, Callable[[], Floats]] = {
            "Relu": lambda: np.where(x < 0, 0.0, x),
            "Gelu": lambda: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
            "FastGelu": lambda: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            "Silu": lambda: x * sigmoid,
            "Sigmoid": lambda: sigmoid,
            "Tanh": lambda: np.tanh(x),
        }
        return np.asarray(np.where(np.isnan(x), x, ways[name]()))


def compare(found: Floats, expected: Numbers, dtype: str) -> str:
    """What is wrong with the numbers; empty where nothing is."""
    value, bound = expected.value, expected.bound
    with np.errstate(all="ignore"):
        if dtype in RANGE:
            wrong = _wrong_integers(found, value, RANGE[dtype])
        else:
            wrong = _wrong_floats(found, value, bound, LARGEST[dtype])
    wrong &= ~expected.open
    if not wrong.any():
        return ""
    place = tuple(int(one) for one in np.argwhere(wrong)[0])
    return (
        f"element {place} is {found[place]!r}, expected {value[place]!r} within {bound[place]:.3g}; "
        f"{int(wrong.sum())} of {wrong.size} are wrong"
    )


def _wrong_integers(found: Floats, value: Floats, limits: tuple[int, int]) -> Any:
    """Rounded to the nearest even, clamped, NaN is 0; what is halfway but for float64's own error may be either."""
    near = 1e-9 * (1 + np.abs(np.where(np.isfinite(value), value, 0.0)))
    low, high = (np.clip(np.rint(np.nan_to_num(value + shift, nan=0.0, posinf=limits[1], neginf=limits[0])), *limits)
                 for shift in (-near, near))  # fmt: skip
    return (found < low) | (found > high)


def _wrong_floats(found: Floats, value: Floats, bound: Floats, largest: float) -> Any:
    plain = np.isfinite(value)
    wrong = plain & ~(np.abs(found - value) <= bound)
    # Beyond the largest number both that and infinity are what rounding may give.
    over = plain & (np.abs(value) + bound > largest) & (np.sign(found) == np.sign(value))
    wrong &= ~(over & (np.abs(found) >= largest * (1 - 2.0**-7)))
    same = (np.isnan(value) & np.isnan(found)) | (value == found)
    return np.where(plain, wrong, ~same)
