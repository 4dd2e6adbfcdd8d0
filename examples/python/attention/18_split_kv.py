"""Split-KV (flash decoding): few rows and many keys leave a GPU idle, so keys are split and partial results combined.

Two stages then run: split, and combine by LSE. The number of splits is selected, or `num_splits`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, keys=1500, splits=4)
rng = np.random.default_rng(16)
q = normal(rng, 1, 1, 8, 64)
k, v = (normal(rng, 1, given.keys, 2, 64) for _ in range(2))
Q, K, V = to_device(q, k, v)
expected = _exact.attention(q, k, v)

for splits in (None, 1, given.splits):
    o, lse = tw.attention(Q, K, V, num_splits=splits, return_lse=True)
    check("splits by selection" if splits is None else f"num_splits={splits}", o, expected.o)
    check("  lse", lse, expected.lse)

registry = tw.Registry()
problem = tw.AttentionProblem(1, 8, 1, given.keys, 64, heads_kv=2, num_splits=given.splits)
for stage in registry.select(problem).stages:
    print(f"stage {stage.spec.signature.family:<12} {stage.name}")
