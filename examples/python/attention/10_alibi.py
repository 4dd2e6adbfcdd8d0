"""ALiBi: each head has a slope, and the score falls with the distance between row and key. Nothing is stored for it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, rows=40, keys=64)
rng = np.random.default_rng(8)
heads = 8
q = normal(rng, 2, given.rows, heads, 64)
k, v = (normal(rng, 2, given.keys, heads, 64) for _ in range(2))
Q, K, V = to_device(q, k, v)
slopes = (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).astype(np.float32)  # of the paper, for powers of two
i, j = np.arange(given.rows)[:, None], np.arange(given.keys)[None, :]

# Without a mask, rows are the last ones of the keys, as in FlashAttention: -slope |i + Sk - Sq - j|.
bias = -slopes[:, None, None] * np.abs(i + given.keys - given.rows - j)
o = tw.attention(Q, K, V, alibi_slopes=to_device(slopes))
check("ALiBi", o, _exact.attention(q, k, v, bias=bias).o)

o = tw.attention(Q, K, V, alibi_slopes=to_device(slopes), causal="bottom_right")
visible = j <= i + given.keys - given.rows
check("ALiBi, causal", o, _exact.attention(q, k, v, bias=bias, visible=visible).o)

# Slopes of its own for each sequence: (B, H).
both = np.stack([slopes, slopes[::-1]])
o = tw.attention(Q, K, V, alibi_slopes=to_device(both))
bias = -both[:, :, None, None] * np.abs(i + given.keys - given.rows - j)
check("slopes of (B, H)", o, _exact.attention(q, k, v, bias=bias).o)
print(f"slopes {slopes[0]:.3f} to {slopes[-1]:.4f}")
