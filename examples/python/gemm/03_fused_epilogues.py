"""Epilogues: bias, residual, activation, gate and C are applied to the accumulator, before the result is stored.

E = epilogue(alpha * A.B + beta * C, D0, D1), with CK's names for D tensors beside PyTorch's `bias` and `residual`.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import Array, check, normal, options, to_device

options(__doc__)
rng = np.random.default_rng(2)
tokens, inner, outer = 32, 128, 96
x, w, bias = normal(rng, tokens, inner), normal(rng, outer, inner), normal(rng, outer)
residual, gate = normal(rng, tokens, outer), normal(rng, outer, inner)
product = x.astype(np.float64) @ w.T


def gelu(value: Array) -> Array:
    return np.asarray(0.5 * value * (1.0 + np.vectorize(math.erf)(value / math.sqrt(2.0))))


def silu(value: Array) -> Array:
    return np.asarray(value / (1.0 + np.exp(-value)))


X, W, BIAS, RESIDUAL, GATE = to_device(x, w.T, bias, residual, gate.T)
check("gelu(x w' + bias)", tw.gemm(X, W, bias=BIAS, epilogue="gelu"), gelu(product + bias))
check("x w' + bias + residual", tw.gemm(X, W, bias=BIAS, residual=RESIDUAL), product + bias + residual)
check("(x w') * d0", tw.gemm(X, W, ds=(RESIDUAL,), epilogue="MultiDMultiply"), product * residual)

# SwiGLU, the first half of Llama's MLP: one call for two products.
exact = silu(x.astype(np.float64) @ gate.T) * product
check("silu(x gate') * (x w')", tw.gated_gemm(X, GATE, W), exact)

# C and the scalars, as in BLAS; `out` may be C itself.
C = to_device(residual.copy())
tw.gemm(X, W, C, alpha=0.5, beta=2.0, out=C)
check("c = 0.5 x w' + 2 c, in place", C, 0.5 * product + 2.0 * residual)
