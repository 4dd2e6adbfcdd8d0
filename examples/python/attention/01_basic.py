"""Attention, forward: softmax(q k' / sqrt(D)) v, with q, k and v of (batch, seqlen, heads, head_dim) as FlashAttention
has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, batch=2, seqlen=100, heads=4, head_dim=64)
rng = np.random.default_rng(0)
q, k, v = (normal(rng, given.batch, given.seqlen, given.heads, given.head_dim) for _ in range(3))

Q, K, V = to_device(q, k, v)
o, lse = tw.attention(Q, K, V, return_lse=True)
expected = _exact.attention(q, k, v)
check("o", o, expected.o)
check("lse, natural logarithm, (B, H, Sq)", lse, expected.lse)

# Another scale than 1 / sqrt(D), and cross-attention: fewer keys than rows.
scaled = tw.attention(Q, K, V, scale=2 / given.head_dim**0.5)
check("scale 2 / sqrt(D)", scaled, _exact.attention(2 * q, k, v).o)
short_k, short_v = k[:, :37].copy(), v[:, :37].copy()
check("37 keys", tw.attention(Q, *to_device(short_k, short_v)), _exact.attention(q, short_k, short_v).o)

problem = tw.AttentionProblem(given.batch, given.heads, given.seqlen, given.seqlen, given.head_dim)
selection = tw.Registry().select(problem)
print(f"kernel {selection.name} (tier {selection.tier})")
