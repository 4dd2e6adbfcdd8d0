"""Attention over parts of the keys, merged by their LSE: what ring attention and cascades of a shared prefix are made
of.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, prefix=100, keys=30)
rng = np.random.default_rng(15)
q = normal(rng, 4, 1, 8, 64)  # four sequences, one new token each
prefix_k, prefix_v = (normal(rng, 1, given.prefix, 2, 64) for _ in range(2))  # the same for all four
own_k, own_v = (normal(rng, 4, given.keys, 2, 64) for _ in range(2))

# The shared prefix is read once: the four rows are rows of one sequence.
rows = np.ascontiguousarray(q.transpose(1, 0, 2, 3))
shared_o, shared_lse = tw.attention(*to_device(rows, prefix_k, prefix_v), return_lse=True)
own_o, own_lse = tw.attention(*to_device(q, own_k, own_v), return_lse=True)

first_o, second_o = to_host(shared_o).transpose(1, 0, 2, 3).astype(np.float64), to_host(own_o).astype(np.float64)
first, second = to_host(shared_lse).transpose(2, 1, 0).astype(np.float64), to_host(own_lse).astype(np.float64)
total = np.logaddexp(first, second)  # (B, H, 1)
weights = [np.exp(part - total).transpose(0, 2, 1)[..., None] for part in (first, second)]
merged = (weights[0] * first_o + weights[1] * second_o).astype(np.float32)

k, v = (np.concatenate([np.repeat(a, 4, axis=0), b], axis=1) for a, b in ((prefix_k, own_k), (prefix_v, own_v)))
expected = _exact.attention(q, k, v)
check("prefix and own keys, merged", merged, expected.o)
check("lse of both", total.astype(np.float32), expected.lse)
print(f"{given.prefix} + 4 * {given.keys} keys are read instead of 4 * {given.prefix + given.keys}")
