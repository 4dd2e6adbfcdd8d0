"""The vector functions of the epilogues over the whole range of fp32, against float64.

Bounds in units in the last place of the fp32 result (half of one is a perfect rounding), over all
arguments unless a range is given; below the smallest normal number the unit is the smallest
subnormal one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.conftest import Probe

Array = np.ndarray[Any, np.dtype[Any]]

NAMES = ("exp", "tanh", "sigmoid", "relu", "silu", "gelu", "fast_gelu")

TEXT = """
#include <tilewright/cpu/epilogues/epilogue.h>
#define EXPORT(name, expression)                                                                           \\
  extern "C" __attribute__((visibility("default"))) void name(const float *in, float *out, int64_t n) {    \\
    for (int64_t i = 0; i < n; i += tw::lanes) { tw::vf x = tw::load_f(in + i); tw::store_f(out + i, expression); } \\
  }
EXPORT(v_exp, tw::vexp(x))
EXPORT(v_tanh, tw::activate<tw::Epilogue::Tanh>(x))
EXPORT(v_sigmoid, tw::activate<tw::Epilogue::Sigmoid>(x))
EXPORT(v_relu, tw::activate<tw::Epilogue::Relu>(x))
EXPORT(v_silu, tw::activate<tw::Epilogue::Silu>(x))
EXPORT(v_gelu, tw::activate<tw::Epilogue::Gelu>(x))
EXPORT(v_fast_gelu, tw::activate<tw::Epilogue::FastGelu>(x))
"""


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _gelu(x: Array) -> Array:
    tail = np.array([math.erfc(one) for one in np.abs(x) / math.sqrt(2.0)])
    return x * np.where(x < 0, 0.5 * tail, 1.0 - 0.5 * tail)


def _fast_gelu(x: Array) -> Array:
    return x * _sigmoid(2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))


EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu,
    "fast_gelu": _fast_gelu,
}


def _run(library: ctypes.CDLL, name: str, x: Array) -> Array:
    padded = np.concatenate([x, np.zeros(-x.size % 16, np.float32)])
    out = np.full(padded.size, np.nan, np.float32)
    getattr(library, f"v_{name}")(
        ctypes.c_void_p(padded.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(padded.size)
    )
    return out[: x.size]


def _arguments() -> Array:
    """Every exponent and sign, dense where the functions bend, and the borders of their branches."""
    rng = np.random.default_rng(3)
    anything = rng.integers(0, 1 << 32, 40_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = [rng.uniform(-r, r, 20_000).astype(np.float32) for r in (0.01, 1.0, 6.0, 15.0, 110.0)]
    marks = np.array([0.0, 0.55, 0.625, 1.0, 87.33, 88.72, 88.73, 89.0, 103.9, 104.0, 105.0, 14.1, 14.2], np.float32)
    near = [np.nextafter(marks, np.float32(way)) for way in (-np.inf, np.inf)]
    x = np.concatenate([anything, *dense, marks, -marks, *near, *(-one for one in near)])
    finite: Array = x[np.isfinite(x)]
    return finite


def _ulps(given: Array, wanted: Array) -> Array:
    """The error in units in the last place of the right answer; an overflow may be infinity."""
    with np.errstate(all="ignore"):
        single = wanted.astype(np.float32)
        unit = np.spacing(np.abs(np.where(np.isfinite(single), single, np.finfo(np.float32).max))).astype(np.float64)
        error = np.abs(given.astype(np.float64) - wanted) / unit
        return np.where(np.isinf(single) & (given == single), 0.0, error)


# Units in the last place.  FastGelu's argument is a polynomial whose rounding the exponential magnifies
# where the result is almost zero: there it is held to its relative error instead.
BOUNDS = {"exp": 1.5, "tanh": 3.0, "sigmoid": 3.0, "relu": 0.0, "silu": 4.0}
# Below this a sigmoid is subnormal, and each unit of it is |x| of the smallest units of the product.
SILU_FROM = -87.0


@pytest.mark.parametrize("arch", catalog.LEVELS)
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_units_in_the_last_place(probe: Probe, arch: str, name: str) -> None:
    x = _arguments()
    with np.errstate(all="ignore"):
        wanted = EXACT[name](x.astype(np.float64))
    given = _run(probe("functions", TEXT, arch), name, x)
    error = _ulps(given, wanted)
    if name == "silu":
        lost = x < SILU_FROM
        assert (np.abs(given - wanted)[lost] <= 2.0 * np.minimum(-x[lost], 110.0) * 2.0**-149).all()
        error = np.where(lost, 0.0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], f"{name}({x[worst]!r}) is off by {error[worst]:.2f} ulp"


@pytest.mark.parametrize("arch", catalog.LEVELS)
@pytest.mark.parametrize(("name", "relative"), [("gelu", 1e-6), ("fast_gelu", 2e-5)])
def test_gelus_keep_their_digits_in_the_left_tail(probe: Probe, arch: str, name: str, relative: float) -> None:
    x = _arguments()
    given = _run(probe("functions", TEXT, arch), name, x).astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = EXACT[name](x.astype(np.float64))
        error = np.abs(given - wanted)
    # Below the normal numbers a few of the smallest ones may be lost.
    allowed = relative * np.abs(wanted) + 4 * 2.0**-149 + np.where(np.abs(wanted) < 2.0**-126, 2.0**-140, 0.0)
    over = np.isinf(wanted.astype(np.float32)) & np.isinf(given)
    worst = int(np.argmax(np.where(over, 0.0, error / allowed)))
    shown = f"{name}({x[worst]!r}) is {given[worst]!r}, not {wanted[worst]!r}"
    assert error[worst] <= allowed[worst] or over[worst], f"{shown}: relative {error[worst] / abs(wanted[worst]):.2e}"


@pytest.mark.parametrize("arch", catalog.LEVELS)
def test_infinities_and_nan(probe: Probe, arch: str) -> None:
    library = probe("functions", TEXT, arch)
    x = np.array([np.inf, -np.inf, np.nan, -np.nan], np.float32)
    limits = {
        "exp": (np.inf, 0), "tanh": (1, -1), "sigmoid": (1, 0), "relu": (np.inf, 0), "silu": (np.inf, 0),
        "gelu": (np.inf, 0), "fast_gelu": (np.inf, 0),
    }  # fmt: skip
    assert set(limits) == set(NAMES)
    for name, (high, low) in limits.items():
        got = _run(library, name, x)
        assert (got[0], got[1]) == (high, low), name
        assert np.isnan(got[2:]).all(), name


@pytest.mark.parametrize("arch", catalog.LEVELS)
def test_numbers_near_zero(probe: Probe, arch: str) -> None:
    """tanh(x) is x and gelu(x) is x/2 there; nothing is flushed, signs are kept."""
    library = probe("functions", TEXT, arch)
    x = np.array([1e-45, 3e-40, 1e-38, 2e-30, 1e-10], np.float32)
    x = np.concatenate([x, -x, np.array([0.0, -0.0], np.float32)])
    assert np.array_equal(_run(library, "tanh", x), x)
    assert np.array_equal(np.signbit(_run(library, "tanh", x)), np.signbit(x))
    for name in ("gelu", "silu", "fast_gelu"):
        assert np.abs(_run(library, name, x) - x / 2).max() <= 1e-17, name
        assert (np.abs(_run(library, name, x) - x / 2) <= 1e-6 * np.abs(x) + 2.0**-149).all(), name
