"""A bias added to the scores, such as T5's relative positions; it broadcasts to (B, H, Sq, Sk) without a copy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=64)
rng = np.random.default_rng(7)
heads = 4
q, k, v = (normal(rng, 2, given.seqlen, heads, 64) for _ in range(3))
Q, K, V = to_device(q, k, v)

# A learned number for each head and distance, as (1, H, Sq, Sk): one for the whole batch.
distances = np.arange(given.seqlen)[None, :] - np.arange(given.seqlen)[:, None]
table = normal(rng, heads, 32)
bias = np.ascontiguousarray(table[:, np.clip(distances + 16, 0, 31)])[None]
check("relative positions", tw.attention(Q, K, V, bias=to_device(bias)), _exact.attention(q, k, v, bias=bias).o)

# A bias for each key, and minus infinity as a mask.
per_key = normal(rng, 2, 1, 1, given.seqlen)
per_key[1, ..., given.seqlen // 2 :] = -np.inf
o = tw.attention(Q, K, V, bias=to_device(per_key), causal=True)
causal = np.tril(np.ones((given.seqlen, given.seqlen), bool))
check("a bias for each key, causal", o, _exact.attention(q, k, v, bias=per_key, visible=causal).o)
print(f"bias of {bias.shape} and {per_key.shape} for scores of {(2, heads, given.seqlen, given.seqlen)}")
