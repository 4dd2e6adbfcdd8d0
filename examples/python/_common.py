"""What the examples share: the option `--target`, arrays on the device of that target, and the comparison with
float64.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import tilewright as tw

Array = np.ndarray[Any, np.dtype[Any]]

# Largest error allowed, as a part of the largest element: a few roundings of the result's type.
TOLERANCES = {"float32": 5e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def options(description: str | None, **integers: int) -> argparse.Namespace:
    """The arguments of an example: `--target`, which every later call obeys, and integers with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="", help="cpu, cuda, hip or an arch such as sm_90a (default: cpu)")
    for name, default in integers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default}")
    given = parser.parse_args()
    tw.settings.configure(target=given.target)
    return given


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def to_device(*arrays: Any) -> Any:
    """The arrays where the target's kernels read them: NumPy's own on a CPU, copies in its memory on a GPU."""
    on_host = tw.Registry().kind == "cpu"
    placed = [array if on_host or array is None else tw.to_device(array) for array in arrays]
    return placed[0] if len(placed) == 1 else placed


def to_host(array: Any) -> Array:
    return np.asarray(array if isinstance(array, np.ndarray) else array.numpy())


def check(name: str, result: Any, exact: Array, tolerance: float | None = None) -> None:
    """Compare a result with float64, print the error, and end the example with status 1 if it is too large."""
    found = to_host(result)
    if found.shape != exact.shape:
        sys.exit(f"{name}: WRONG, the shape is {found.shape} and should be {exact.shape}")
    allowed = TOLERANCES.get(found.dtype.name, 0.0) if tolerance is None else tolerance
    largest = float(np.abs(exact).max(initial=0.0))
    error = float(np.abs(found.astype(np.float64) - exact).max(initial=0.0))
    relative = error / largest if largest else error
    text = f"{name:<44} {found.dtype.name} {found.shape}: error {relative:.1e} (at most {allowed:.1e})"
    if not relative <= allowed:  # also NaN
        sys.exit(f"{text}: WRONG")
    print(text)
