"""Gradients with grouped-query attention: dk and dv of a KV head are sums over the query heads that share it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=64, heads=8, heads_kv=2)
rng = np.random.default_rng(22)
q, do = (normal(rng, 2, given.seqlen, given.heads, 64) for _ in range(2))
k, v = (normal(rng, 2, given.seqlen, given.heads_kv, 64) for _ in range(2))
Q, K, V, DO = to_device(q, k, v, do)

o, lse = tw.attention(Q, K, V, return_lse=True)
dk, dv = to_device(np.empty_like(k), np.empty_like(v))  # where gradients go may be given
dq, *_ = tw.attention_backward(DO, Q, K, V, o, lse, dk=dk, dv=dv)
expected = _exact.attention_backward(do, q, k, v)
for name, gradient, exact in zip(("dq", "dk", "dv"), (dq, dk, dv), expected, strict=False):
    check(name, gradient, exact)

# The same by hand: K and V repeated for each query head, then the gradients of a group added up.
group = given.heads // given.heads_kv
dk_each, dv_each = _exact.attention_backward(do, q, k.repeat(group, axis=2), v.repeat(group, axis=2))[1:3]
for name, gradient, each in (("dk", dk, dk_each), ("dv", dv, dv_each)):
    check(f"{name}, summed over groups", gradient, each.reshape(2, given.seqlen, given.heads_kv, group, 64).sum(axis=3))
print(f"{given.heads} query heads, gradients of {given.heads_kv} KV heads; nothing was repeated or summed outside")
