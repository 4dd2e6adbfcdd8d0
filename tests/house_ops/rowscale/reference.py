"""Rowscale in float64, and how far a right result may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rowscale.spec import RowscaleProblem
from tilewright.dtypes import DTYPES
from tilewright.ops import numerics
from tilewright.ops.fused import ACTIVATION_ULPS, LIPSCHITZ, activation

Array = np.ndarray[Any, np.dtype[Any]]


def exact(problem: RowscaleProblem, x: Array, scale: Array, alpha: float) -> tuple[Array, Array]:
    """The result before its last rounding, and what went into the activation."""
    with np.errstate(all="ignore"):
        before = alpha * x.astype(np.float64) * scale.astype(np.float64)[:, None]
    return (before if problem.activation == "PassThrough" else activation(problem.activation, before)), before


def error_bound(problem: RowscaleProblem, value: Array, before: Array) -> Array:
    """Three roundings (alpha, its product with the scale, the product with x), the activation, the last rounding."""
    u = DTYPES["fp32"].unit_roundoff
    with np.errstate(all="ignore"):
        error = 3.01 * u * np.abs(before) + 4 * numerics.TINY32
        if problem.activation != "PassThrough":
            error = LIPSCHITZ[problem.activation] * error + ACTIVATION_ULPS * u * np.maximum(1.0, np.abs(before))
        last = DTYPES[problem.dtype].unit_roundoff
        return np.asarray(error + last * (np.abs(value) + error) + numerics.SMALLEST[problem.dtype])
