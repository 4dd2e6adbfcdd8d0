"""Variable lengths without padding: sequences one after the other, delimited by `cu_seqlens` (FlashAttention's
varlen).
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, sequences=5, seed=14)
rng = np.random.default_rng(given.seed)
lengths = rng.integers(0, 60, given.sequences)
cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
total = int(cu_seqlens[-1])
q = normal(rng, total, 8, 64)  # (rows, heads, head_dim): no batch dimension
k, v = (normal(rng, total, 2, 64) for _ in range(2))

starts = to_device(cu_seqlens)
o, lse = tw.attention(
    *to_device(q, k, v), cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=60, max_seqlen_k=60, causal=True,
    return_lse=True,
)  # fmt: skip
expected, logs = np.zeros(q.shape), np.zeros((8, total))
for first, last in pairwise(cu_seqlens):
    rows = slice(first, last)
    one = _exact.attention(q[None, rows], k[None, rows], v[None, rows], visible=np.tri(last - first, dtype=bool))
    expected[rows], logs[:, rows] = one.o[0], one.lse[0]
check(f"lengths {', '.join(map(str, lengths))}", o, expected)
check("lse of (heads, rows)", lse, logs)
print(f"{total} rows; padded to the longest they would be {given.sequences * int(lengths.max())}")
