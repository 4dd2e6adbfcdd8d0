"""Batch prefill: packed prompts of different lengths against a paged cache, with FlashInfer's page tables.

Pages are given as (indptr, indices, length of the last page), so sequences need no common number of pages. A prompt
may continue an earlier one (chunked prefill): its rows are the last ones of its keys.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, page=16)
rng = np.random.default_rng(19)
rows, keys = np.array([20, 3, 33]), np.array([20, 50, 64])  # the second and the third continue
heads, heads_kv, head_dim = 8, 2, 64

counts = -(-keys // given.page)
indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
indices = rng.permutation(int(indptr[-1]) + 2)[: indptr[-1]].astype(np.int32)
last = (keys - (counts - 1) * given.page).astype(np.int32)
pool_k, pool_v = (normal(rng, int(indptr[-1]) + 2, given.page, heads_kv, head_dim) for _ in range(2))
cu_seqlens = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
q = normal(rng, int(cu_seqlens[-1]), heads, head_dim)

o = tw.attention(
    *to_device(q, pool_k, pool_v), block_table=tuple(to_device(indptr, indices, last)),
    cu_seqlens_q=to_device(cu_seqlens), max_seqlen_q=int(rows.max()), max_seqlen_k=int(keys.max()),
    causal="bottom_right",
)  # fmt: skip
found = to_host(o)
for index in range(len(rows)):
    mine = slice(cu_seqlens[index], cu_seqlens[index + 1])
    chosen = indices[indptr[index] : indptr[index + 1]]
    k, v = (pool[chosen].reshape(1, -1, heads_kv, head_dim)[:, : keys[index]] for pool in (pool_k, pool_v))
    visible = np.tri(rows[index], keys[index], keys[index] - rows[index], dtype=bool)
    expected = _exact.attention(q[None, mine], k, v, visible=visible).o[0]
    check(f"{rows[index]} rows, {keys[index]} keys in {counts[index]} pages", found[mine], expected)
