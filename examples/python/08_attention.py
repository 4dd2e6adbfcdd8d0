"""Attention: a prompt, then one token after the other from a cache in pages, and what a mistake is told."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tilewright as tw

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--prompt", type=int, default=100)
parser.add_argument("--tokens", type=int, default=4)
options = parser.parse_args()

heads, heads_kv, size, slots = 8, 2, 64, 16
rng = np.random.default_rng(0)


def rows(count: int, of: int) -> np.ndarray:
    return rng.standard_normal((1, count, of, size), dtype=np.float32)


def plain(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
    """The same in NumPy and float64, causal as FlashAttention aligns it."""
    q, k, v = (one[0].astype(np.float64) for one in (q, k, v))
    k, v = (np.repeat(one, heads // heads_kv, axis=1) for one in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
    hidden = np.arange(len(k))[None, :] > np.arange(len(q))[:, None] + len(k) - len(q)
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(axis=-1, keepdims=True), v)[None]


# A prompt: every row sees the keys up to its own.
q, k, v = rows(options.prompt, heads), rows(options.prompt, heads_kv), rows(options.prompt, heads_kv)
o, lse = tw.attention(q, k, v, causal=True, return_lse=True)
np.testing.assert_allclose(o, plain(q, k, v), rtol=1e-4, atol=1e-4)
print(f"prompt of {options.prompt}: {o.shape}, lse {lse.shape}")

# Its keys go to a pool of pages, in any order; a table says where they are.
pages = -(-(options.prompt + options.tokens) // slots)
pool_k, pool_v = (np.zeros((pages + 3, slots, heads_kv, size), np.float32) for _ in range(2))
table = rng.permutation(pages + 3)[None, :pages].astype(np.int32)
lengths = np.zeros(1, np.int32)
tw.append_kv(pool_k, pool_v, k, v, cache_seqlens=lengths, block_table=table)
lengths += options.prompt

# Tokens, one at a time: append its key, then read the whole cache once.
for _ in range(options.tokens):
    q, new_k, new_v = rows(1, heads), rows(1, heads_kv), rows(1, heads_kv)
    tw.append_kv(pool_k, pool_v, new_k, new_v, cache_seqlens=lengths, block_table=table)
    lengths += 1
    o = tw.attention(q, pool_k, pool_v, block_table=table, seqlens_k=lengths)
    k, v = np.concatenate([k, new_k], axis=1), np.concatenate([v, new_v], axis=1)
    np.testing.assert_allclose(o, plain(q, k, v), rtol=1e-4, atol=1e-4)
print(f"{options.tokens} tokens from {pages} pages of {slots}: all right")

# A table that leads out of the pool is an error, and nothing is read.
table[0, 0] = pages + 3
try:
    tw.attention(q, pool_k, pool_v, block_table=table, seqlens_k=lengths)
except tw.TilewrightError as error:
    print(f"refused, as it should be: {error.rule}")
