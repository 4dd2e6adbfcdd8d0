"""Attention sinks, both kinds: a logit for each head without a value (gpt-oss), and first tokens that stay visible
in spite of a window (StreamingLLM).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=96, left=15, tokens=4)
rng = np.random.default_rng(10)
heads = 4
q, k, v = (normal(rng, 1, given.seqlen, heads, 64) for _ in range(3))
Q, K, V = to_device(q, k, v)

# A logit a head takes part in the softmax and adds nothing: weights sum to less than 1.
sink = normal(rng, heads) + np.float32(4.0)
plain = _exact.attention(q, k, v)
share = 1.0 / (1.0 + np.exp(sink[:, None] - plain.lse))  # (B, H, Sq): what is left for the keys
o = tw.attention(Q, K, V, sink=to_device(sink))
check("sink logits", o, plain.o * share.transpose(0, 2, 1)[..., None])

# The first tokens are visible from everywhere behind them.
i, j = np.arange(given.seqlen)[:, None], np.arange(given.seqlen)[None, :]
visible = ((j >= i - given.left) | (j < given.tokens)) & (j <= i)
o = tw.attention(Q, K, V, window=(given.left, 0), sink_tokens=given.tokens)
check(f"{given.tokens} sink tokens, window ({given.left}, 0)", o, _exact.attention(q, k, v, visible=visible).o)
print(f"{share.mean():.2f} of the weight is left for keys; the last row sees {int(visible[-1].sum())} keys")
