"""Work fused into the GEMM: bias, residual, activation, gate, all before the result is stored.

E = epilogue(alpha * A.B + beta * C, D0, D1)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tilewright as tw

Array = np.ndarray[Any, np.dtype[Any]]


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))))


def check(what: str, result: Array, exact: Array) -> None:
    error = float(np.abs(result.astype(np.float64) - exact).max())
    print(f"{what:<44} largest error {error:.1e}")
    assert error < 1e-3 * max(1.0, float(np.abs(exact).max())), f"{what} is wrong"


def main() -> None:
    generator = np.random.default_rng(2)

    def random(*shape: int) -> Array:
        return generator.standard_normal(shape, dtype=np.float32)

    tokens, inner, outer = 32, 128, 96
    x, w, bias = random(tokens, inner), random(outer, inner), random(outer)
    residual, gate = random(tokens, outer), random(tokens, outer)
    product = x.astype(np.float64) @ w.T

    check("relu(x w' + bias)", tw.gemm(x, w.T, ds=(bias,), epilogue="relu"), np.maximum(product + bias, 0))
    check("gelu(x w' + bias)", tw.gemm(x, w.T, ds=(bias,), epilogue="gelu"), gelu(product + bias))
    both = tw.gemm(x, w.T, ds=(bias, residual), epilogue="MultiDAdd")
    check("x w' + bias + residual", both, product + bias + residual)
    check("(x w') * gate", tw.gemm(x, w.T, ds=(gate,), epilogue="MultiDMultiply"), product * gate)
    check("silu(x w')", tw.gemm(x, w.T, epilogue="silu"), product / (1 + np.exp(-product)))

    # C and the scalars; out may be C itself, as in BLAS.
    c = residual.copy()
    tw.gemm(x, w.T, c, alpha=0.5, beta=2.0, out=c)
    check("c = 0.5 x w' + 2 c, in place", c, 0.5 * product + 2.0 * residual)

    # A batch with one shared B.
    batch = random(3, tokens, inner)
    check("three x_i w', one w for all", tw.gemm(batch, w.T), batch.astype(np.float64) @ w.T)


if __name__ == "__main__":
    main()
