"""The gradient of a bias, which is that of the scores, summed over what the bias repeats along."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=48)
rng = np.random.default_rng(24)
heads = 4
q, k, v, do = (normal(rng, 2, given.seqlen, heads, 64) for _ in range(4))
Q, K, V, DO = to_device(q, k, v, do)

bias = normal(rng, 1, heads, given.seqlen, given.seqlen)  # one for the batch: its gradient is a sum over it
B = to_device(bias)
o, lse = tw.attention(Q, K, V, bias=B, return_lse=True)
dq, _, _, dbias = tw.attention_backward(DO, Q, K, V, o, lse, bias=B, return_dbias=True)
expected = _exact.attention_backward(do, q, k, v, bias=bias)
check("dq", dq, expected.dq)
check("dbias", dbias, expected.dscores.sum(axis=0, keepdims=True))

print("the gradient of a bias is fp32; return_dsink and return_dalibi give those of sink logits and slopes")
