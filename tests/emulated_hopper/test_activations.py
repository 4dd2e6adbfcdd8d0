"""The fp32 forms of activations on GPUs, evaluated densely on the host and held against float64.

The instructions for 2^x and 1/x are within 2^-22 and 2^-23 of the true values (PTX); here they err by just that much,
either way.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.emulated_hopper.emulator import DEFINED, FLAGS, PLACES
from tilewright.backends.cuda.toolchain import include_dirs
from tilewright.ops.fused import ACTIVATIONS
from tilewright.ops.numerics import ACTIVATION_ULPS, U32, activation

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

# In units of 2^-24 max(1, |x|), as activation.h states them.
STATED = {"Relu": 0.0, "Sigmoid": 4.0, "Tanh": 8.0, "Silu": 5.0, "FastGelu": 5.0, "Gelu": 5.0}
HEADER = Path("tilewright") / "gpu" / "activation.h"
SOURCE = """
#include <tilewright/gpu/activation.h>
#define TW_ONE(Kind) \\
  extern "C" __attribute__((visibility("default"))) void Kind(const float *x, float *y, long count) { \\
    for (long i = 0; i < count; ++i) y[i] = tw::activate<tw::Epilogue::Kind>(x[i]); \\
  }
"""


def nudged(header: str) -> str:
    """The header with instructions that err."""
    for before, after in (("return exp2f(x);", "exp2f(x) * tw_power"), ("return 1.0f / x;", "tw_over / x")):
        assert before in header
        header = header.replace(before, f"return {after};")
    both = 'extern "C" { __attribute__((visibility("default"))) float tw_power = 1, tw_over = 1; }\n'
    return header.replace("#ifdef TW_ON_GPU\n", f"#ifdef TW_ON_GPU\n}}\n{both}namespace tw {{\n", 1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("activations")
    (folder / HEADER).parent.mkdir(parents=True)
    real = next(one / HEADER for one in include_dirs() if (one / HEADER).exists())
    (folder / HEADER).write_text(nudged(real.read_text(encoding="utf-8")), encoding="utf-8")
    source = folder / "forms.cpp"
    source.write_text(SOURCE + "".join(f"TW_ONE({one})\n" for one in ACTIVATIONS), encoding="utf-8")
    places = [f"-I{one}" for one in (folder, *PLACES)]
    made = folder / "forms.so"
    command = [compiler, *FLAGS, *DEFINED, "-O2", "-shared", *places, "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(made))


def evaluated(library: ctypes.CDLL, name: str, x: np.ndarray, power: float = 1.0, over: float = 1.0) -> np.ndarray:
    ctypes.c_float.in_dll(library, "tw_power").value = power
    ctypes.c_float.in_dll(library, "tw_over").value = over
    y = np.empty_like(x)
    getattr(library, name)(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size))
    return y


@pytest.fixture(scope="module")
def places() -> np.ndarray:
    """Every size of number, and closely all where the functions bend."""
    sizes = np.exp2(np.linspace(-149, 127.99, 40001))
    return np.concatenate([np.linspace(-24, 24, 400001), sizes, -sizes]).astype(np.float32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_errors_are_as_stated_and_within_the_bound(library: ctypes.CDLL, places: np.ndarray, name: str) -> None:
    assert STATED[name] <= ACTIVATION_ULPS
    x = places.astype(np.float64)
    exact = activation(name, x)
    worst = 0.0
    for power, over in product((-1, 0, 1), repeat=2):
        found = evaluated(library, name, places, 1 + power * 2.0**-22, 1 + over * 2.0**-23)
        error = np.abs(found.astype(np.float64) - exact) / (U32 * np.maximum(1.0, np.abs(x)))
        worst = max(worst, float(error.max()))
    assert worst <= STATED[name], worst
    assert worst >= STATED[name] - 1.0, f"{name} is better than stated: {worst}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_digits_stay_where_values_are_small(library: ctypes.CDLL, name: str) -> None:
    """Near 0 and on the way down: relative to the value, not to 1."""
    x = np.concatenate([np.linspace(-3, -0.01, 20001), np.exp2(np.linspace(-120, -1, 20001))]).astype(np.float32)
    exact = activation(name, x.astype(np.float64))
    error = np.abs(evaluated(library, name, x) - exact) / np.maximum(np.abs(exact), 1e-300)
    assert float(np.where(exact == 0, 0.0, error).max()) < 1e-5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_and_infinities(library: ctypes.CDLL, name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0], np.float32)
    with np.errstate(all="ignore"):
        exact = activation(name, x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(evaluated(library, name, x), exact, rtol=0, atol=1e-21)  # of Gelu at -inf 5e-22 is left
