"""A boolean mask: True where a key is visible, of any shape that broadcasts to (B, H, Sq, Sk), without a copy of it.

Here documents that were packed into one row must not see each other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

options(__doc__)
rng = np.random.default_rng(6)
batch, seqlen, heads = 2, 64, 4
q, k, v = (normal(rng, batch, seqlen, heads, 64) for _ in range(3))
Q, K, V = to_device(q, k, v)

documents = np.sort(rng.integers(0, 5, (batch, seqlen)), axis=1)
mask = (documents[:, :, None] == documents[:, None, :])[:, None]  # (B, 1, Sq, Sk): the same for all heads
o = tw.attention(Q, K, V, mask=to_device(mask))
check("documents", o, _exact.attention(q, k, v, visible=mask).o)

# Beside a causal mask: both have to let a key through.
causal = np.tril(np.ones((seqlen, seqlen), bool))
o = tw.attention(Q, K, V, mask=to_device(mask), causal=True)
check("documents, causal", o, _exact.attention(q, k, v, visible=mask & causal).o)

# SDPA's argument takes a boolean mask or a float bias, by its type. A row that sees no key gives 0, not NaN.
mask[:, :, 3] = False
o = tw.attention(Q, K, V, attn_mask=to_device(mask))
check("attn_mask, row 3 sees nothing", o, _exact.attention(q, k, v, visible=mask).o)
