"""Conversions, bit for bit: every narrow value to float, and float back, one by one and by vectors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.conftest import Probe
from tilewright.runtime.numpy_types import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

NARROW = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2")

TEXT = """
#include <tilewright/cpu/primitives/convert.h>
#define EXPORT extern "C" __attribute__((visibility("default")))
#define TO_FLOAT(T)                                                                             \\
  EXPORT void one_##T(const tw::T *x, float *y, int64_t n) {                                    \\
    for (int64_t i = 0; i < n; ++i) y[i] = tw::to_float(x[i]);                                  \\
  }                                                                                             \\
  EXPORT void all_##T(const tw::T *x, float *y, int64_t n) {                                    \\
    for (int64_t i = 0; i < n; i += tw::lanes) tw::store_f(y + i, tw::load_as_float(x + i));    \\
  }                                                                                             \\
  EXPORT void some_##T(const tw::T *x, float *y, int64_t n) { /* groups of 1, 2, ... elements */ \\
    for (int64_t i = 0, c = 1; i < n; i += c, c = c % tw::lanes + 1) {                          \\
      int64_t count = c < n - i ? c : n - i;                                                    \\
      tw::store_from_float(y + i, tw::load_as_float(x + i, count), count);                      \\
    }                                                                                           \\
  }
#define FROM_FLOAT(T)                                                                           \\
  EXPORT void back_one_##T(const float *x, tw::T *y, int64_t n) {                               \\
    for (int64_t i = 0; i < n; ++i) tw::from_float(x[i], y + i);                                \\
  }                                                                                             \\
  EXPORT void back_all_##T(const float *x, tw::T *y, int64_t n) {                               \\
    for (int64_t i = 0; i < n; i += tw::lanes) tw::store_from_float(y + i, tw::load_f(x + i));  \\
  }                                                                                             \\
  EXPORT void back_some_##T(const float *x, tw::T *y, int64_t n) {                              \\
    for (int64_t i = 0, c = 1; i < n; i += c, c = c % tw::lanes + 1) {                          \\
      int64_t count = c < n - i ? c : n - i;                                                    \\
      tw::store_from_float(y + i, tw::load_as_float(x + i, count), count);                      \\
    }                                                                                           \\
  }
TO_FLOAT(fp16)
TO_FLOAT(bf16)
TO_FLOAT(fp8_e4m3)
TO_FLOAT(fp8_e5m2)
FROM_FLOAT(fp16)
FROM_FLOAT(bf16)
#define FROM_DOUBLE(T)                                                                          \\
  EXPORT void to_##T(const double *x, tw::T *y, int64_t n) {                                    \\
    for (int64_t i = 0; i < n; ++i) tw::from_double(x[i], y + i);                               \\
  }
FROM_DOUBLE(int8)
FROM_DOUBLE(int32)
"""


def _apply(library: ctypes.CDLL, name: str, given: Array, kind: Any) -> Array:
    out = np.full(given.size, 99, kind)
    getattr(library, name)(
        ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(given.size)
    )
    return out


def _same_floats(given: Array, wanted: Array) -> bool:
    """The same bits, where NaN is any NaN of the same sign."""
    nan = np.isnan(wanted)
    if not np.array_equal(nan, np.isnan(given)) or not np.array_equal(np.signbit(given), np.signbit(wanted)):
        return False
    return np.array_equal(given[~nan].view(np.uint32), wanted[~nan].view(np.uint32))


@pytest.mark.parametrize("arch", catalog.LEVELS)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_value_to_float(probe: Probe, arch: str, dtype: str) -> None:
    kind = numpy_dtype(dtype)
    bits = np.arange(1 << (8 * kind.itemsize), dtype=f"u{kind.itemsize}")
    wanted = bits.view(kind).astype(np.float32)
    for way in ("one", "all", "some"):
        given = _apply(probe("convert", TEXT, arch), f"{way}_{dtype}", bits, np.float32)
        assert _same_floats(given, wanted), way


def _floats(dtype: str) -> Array:
    """Floats that decide about rounding: every narrow value, every tie between two, and a step to either side."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = bits.view(numpy_dtype(dtype)).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    ties = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)  # exact: one more bit
    edges = np.array([65504, 65519.996, 65520, 65536, 3.3895e38, 3.3961e38, 3.4028235e38], np.float32)
    rng = np.random.default_rng(1)
    anything = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        near = [np.nextafter(one, np.float32(way)) for one in (ties, edges) for way in (-np.inf, np.inf)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 2**-25, 2**-24], np.float32)
    payloads = np.array([0x7F800001, 0x7FBFFFFF, 0xFF800001, 0x7FC00000, 0x7F80FFFF], np.uint32).view(np.float32)
    found = np.concatenate([values, ties, edges, -edges, *near, special, payloads, anything])
    return np.concatenate([found, np.zeros(-found.size % 16, np.float32)])


@pytest.mark.parametrize("arch", catalog.LEVELS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_float_rounds_to_nearest_even(probe: Probe, arch: str, dtype: str) -> None:
    given = _floats(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = given.astype(numpy_dtype(dtype)).view(np.uint16)
    nan = np.isnan(given)
    for way in ("back_one", "back_all", "back_some"):
        got = _apply(probe("convert", TEXT, arch), f"{way}_{dtype}", given, np.uint16)
        wrong = np.flatnonzero((got != wanted) & ~nan)
        assert wrong.size == 0, f"{way}: {given[wrong[0]]!r} became {got[wrong[0]]:#x}, not {wanted[wrong[0]]:#x}"
        assert np.isnan(got[nan].view(numpy_dtype(dtype)).astype(np.float32)).all(), way


def test_integers_round_to_even_and_clamp(probe: Probe) -> None:
    library = probe("convert", TEXT, catalog.best())
    rng = np.random.default_rng(2)
    halves = np.arange(-300, 300) / 2
    for dtype, low, high in (("int8", -128, 127), ("int32", -(2**31), 2**31 - 1)):
        edges = [low + by for by in (-1.0, -0.5, -0.25, 0.0, 0.5)] + [high + by for by in (-0.5, 0.0, 0.25, 0.5, 1.0)]
        special = [np.inf, -np.inf, 1e300, -1e300, 5e-324, -0.0, 0.49999999999999994, -0.49999999999999994]
        given = np.concatenate([halves, edges, special, rng.uniform(2.0 * low, 2.0 * high, 10_000)])
        got = _apply(library, f"to_{dtype}", given, dtype)
        assert np.array_equal(got, np.clip(np.rint(given), low, high).astype(dtype))
        assert _apply(library, f"to_{dtype}", np.array([np.nan]), dtype)[0] == 0
