"""Gradients with dropout: the backward pass makes the same mask from the same seed, so no mask is stored."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, seqlen=64, percent=20, seed=77)
rng = np.random.default_rng(23)
q, k, v, do = (normal(rng, 1, given.seqlen, 4, 64) for _ in range(4))
p = given.percent / 100
Q, K, V, DO = to_device(q, k, v, do)

# Which entries are kept: with the identity as v, attention returns its weights (see 13_dropout.py).
identity = np.tile(np.eye(given.seqlen, dtype=np.float32)[None, :, None], (1, 1, 4, 1))
weights = to_host(tw.attention(Q, K, to_device(identity), dropout_p=p, seed=given.seed))
keep = (weights.transpose(0, 2, 1, 3) != 0) / (1 - p)

o, lse = tw.attention(Q, K, V, dropout_p=p, seed=given.seed, return_lse=True)
gradients = tw.attention_backward(DO, Q, K, V, o, lse, dropout_p=p, seed=given.seed)
expected = _exact.attention_backward(do, q, k, v, keep=keep)
for name, gradient, exact in zip(("dq", "dk", "dv"), gradients, expected, strict=False):
    check(name, gradient, exact)
print(f"{(keep == 0).mean():.3f} of the entries were dropped, the same in both passes")
