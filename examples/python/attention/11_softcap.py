"""Soft-capped logits (Gemma 2, Grok): scores s become c tanh(s / c), before bias and mask."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=80, cap=5)
rng = np.random.default_rng(9)
q, k, v = (normal(rng, 2, given.seqlen, 4, 64) for _ in range(3))
q *= 6.0  # large scores, which the cap changes
Q, K, V = to_device(q, k, v)
causal = np.tril(np.ones((given.seqlen, given.seqlen), bool))

capped = _exact.attention(q, k, v, softcap=given.cap, visible=causal)
o, lse = tw.attention(Q, K, V, softcap=float(given.cap), causal=True, return_lse=True)
check(f"softcap {given.cap}, causal", o, capped.o)
check("lse of the capped scores", lse, capped.lse)

plain = _exact.attention(q, k, v, visible=causal)

# No score exceeds the cap, so no weight of a row of n keys exceeds 1 / (1 + (n - 1) exp(-2 cap)).
bound = 1 / (1 + (given.seqlen - 1) * np.exp(-2.0 * given.cap))
if capped.weights[0, 0, -1].max() > bound:
    sys.exit("a weight is larger than the cap allows")
print(f"largest weight {capped.weights[0, 0, -1].max():.3f}, without the cap {plain.weights[0, 0, -1].max():.3f}")
