"""Causal masks: top left as in PyTorch's SDPA, or bottom right as in FlashAttention; they differ if Sq != Sk."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, rows=24, keys=40)
rng = np.random.default_rng(4)
q = normal(rng, 1, given.rows, 4, 64)
k, v = (normal(rng, 1, given.keys, 4, 64) for _ in range(2))
Q, K, V = to_device(q, k, v)
i, j = np.arange(given.rows)[:, None], np.arange(given.keys)[None, :]

check("top_left: j <= i", tw.attention(Q, K, V, causal=True), _exact.attention(q, k, v, visible=j <= i).o)
aligned = j <= i + given.keys - given.rows
check("bottom_right: j <= i + Sk - Sq", tw.attention(Q, K, V, causal="bottom_right"),
      _exact.attention(q, k, v, visible=aligned).o)  # fmt: skip
print(f"the last row sees {given.rows} keys top left, {given.keys} bottom right")

# A step of decoding is the last row of bottom_right: it sees every key, so it needs no mask at all.
last = tw.attention(to_device(q[:, -1:].copy()), K, V)
check("the last row alone", last, _exact.attention(q, k, v, visible=aligned).o[:, -1:])
