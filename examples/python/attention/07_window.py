"""Sliding windows: row i attends to `left` keys before its own and `right` after it (Mistral, Gemma, local encoders).

Keys outside of the window are skipped, not computed and thrown away: the time grows with the window.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=96, left=15, right=8)
rng = np.random.default_rng(5)
q, k, v = (normal(rng, 1, given.seqlen, 4, 64) for _ in range(3))
Q, K, V = to_device(q, k, v)
i, j = np.arange(given.seqlen)[:, None], np.arange(given.seqlen)[None, :]

both = (j >= i - given.left) & (j <= i + given.right)
o = tw.attention(Q, K, V, window=(given.left, given.right))
check(f"window ({given.left}, {given.right})", o, _exact.attention(q, k, v, visible=both).o)

causal = (j >= i - given.left) & (j <= i)
o = tw.attention(Q, K, V, window=(given.left, 0))
check(f"window ({given.left}, 0): causal", o, _exact.attention(q, k, v, visible=causal).o)

ahead = j <= i + given.right  # None, or -1 as in FlashAttention, is no bound
o = tw.attention(Q, K, V, window=(None, given.right))
check(f"window (None, {given.right})", o, _exact.attention(q, k, v, visible=ahead).o)
print(f"{int(causal.sum())} of {causal.size} pairs are computed in the causal window")
