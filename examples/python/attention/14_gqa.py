"""Grouped-query attention: query heads share KV heads (Llama 3: 32 of 8), or all share one (multi-query). Nothing is
repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=80, heads=8)
rng = np.random.default_rng(12)
q = normal(rng, 2, given.seqlen, given.heads, 64)
Q = to_device(q)
causal = np.tril(np.ones((given.seqlen, given.seqlen), bool))
for heads_kv in (given.heads, 2, 1):
    k, v = (normal(rng, 2, given.seqlen, heads_kv, 64) for _ in range(2))
    o = tw.attention(Q, *to_device(k, v), causal=True)
    cache = 2 * k.nbytes // 1024
    check(f"{given.heads} heads share {heads_kv}: {cache} KiB", o, _exact.attention(q, k, v, visible=causal).o)

# Heads that do not divide are refused.
try:
    tw.attention(Q, *to_device(*(normal(rng, 2, given.seqlen, 3, 64) for _ in range(2))))
except tw.errors.ProblemError as error:
    print(f"refused: [{error.rule}] {error.message}")
else:
    sys.exit("3 KV heads were accepted")
