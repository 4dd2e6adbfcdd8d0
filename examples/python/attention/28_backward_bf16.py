"""Gradients in bf16: operands and gradients have 8 bits of precision, sums and lse are fp32."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, seqlen=80)
rng = np.random.default_rng(26)
bf16 = ml_dtypes.bfloat16
q, do = (normal(rng, 1, given.seqlen, 8, 64, dtype=bf16) for _ in range(2))
k, v = (normal(rng, 1, given.seqlen, 2, 64, dtype=bf16) for _ in range(2))
Q, K, V, DO = to_device(q, k, v, do)

o, lse = tw.attention(Q, K, V, causal=True, return_lse=True)
gradients = tw.attention_backward(DO, Q, K, V, o, lse, causal=True)
expected = _exact.attention_backward(do, q, k, v, visible=np.tri(given.seqlen, dtype=bool))
for name, gradient, exact in zip(("dq", "dk", "dv"), gradients, expected, strict=False):
    check(name, gradient, exact, tolerance=2e-2)

# How much of that is rounding of the result alone: half a unit of bf16, at the largest element.
error = np.abs(to_host(gradients[2]).astype(np.float64) - expected.dv).max() / np.abs(expected.dv).max()
rounded = np.abs(expected.dv.astype(bf16).astype(np.float64) - expected.dv).max() / np.abs(expected.dv).max()
print(f"dv: error {error:.1e}, of which rounding the exact gradient to bf16 has {rounded:.1e}")
