"""Rowscale in float64, and how far a right result may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rowscale.spec import RowscaleProblem
from tilewright.ops import numerics

Array = np.ndarray[Any, np.dtype[Any]]


def exact(problem: RowscaleProblem, x: Array, scale: Array, alpha: float) -> tuple[Array, Array]:
    """The result before its last rounding, and what went into the activation."""
    with np.errstate(all="ignore"):
        before = alpha * x.astype(np.float64) * scale.astype(np.float64)[:, None]
    return (before if problem.activation == "PassThrough" else numerics.activation(problem.activation, before)), before


def error_bound(problem: RowscaleProblem, value: Array, before: Array) -> Array:
    """Three roundings (alpha, its product with the scale, the product with x), the activation, the last rounding."""
    with np.errstate(all="ignore"):
        error = numerics.gamma(3) * np.abs(before) + 4 * numerics.TINY32
        if problem.activation != "PassThrough":
            error = numerics.after_activation(problem.activation, before, error)
        return numerics.after_rounding(problem.dtype, value, error)
