"""append_kv: new rows go behind those of each sequence, k (and q) rotated by rotary embedding on the way, in one
kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import Array, check, normal, options, to_device, to_host

given = options(__doc__, capacity=64, rows=3)
rng = np.random.default_rng(18)
lengths = np.array([40, 0, 17], np.int32)
batch, heads, heads_kv, head_dim = len(lengths), 4, 2, 64
cache_k, cache_v = (normal(rng, batch, given.capacity, heads_kv, head_dim) for _ in range(2))
q = normal(rng, batch, given.rows, heads, head_dim)
k, v = (normal(rng, batch, given.rows, heads_kv, head_dim) for _ in range(2))

# cos and sin: a row for each position, a column for each pair. "half" pairs (i, i + D/2), "interleaved" (2i, 2i + 1).
angles = np.arange(given.capacity)[:, None] / 10000.0 ** (np.arange(0, head_dim, 2) / head_dim)
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
positions = lengths[:, None] + np.arange(given.rows)  # (B, rows)


def rotated(x: Array) -> Array:
    left, right = np.split(x.astype(np.float64), 2, axis=-1)
    c, s = (table[positions][:, :, None] for table in (cos, sin))
    return np.concatenate([left * c - right * s, right * c + left * s], axis=-1)


CACHE_K, CACHE_V, Q, K, V, LENGTHS = to_device(cache_k.copy(), cache_v.copy(), q, k, v, lengths)
appended = tw.append_kv(
    CACHE_K, CACHE_V, K, V, cache_seqlens=LENGTHS, q=Q, rotary=(*to_device(cos, sin), "half")
)  # fmt: skip
expected_k, expected_v = cache_k.astype(np.float64), cache_v.astype(np.float64)
for index, place in enumerate(positions):
    expected_k[index, place], expected_v[index, place] = rotated(k)[index], v[index]
check("cache of k", appended.cache_k, expected_k)
check("cache of v", appended.cache_v, expected_v)
check("q, rotated", appended.q, rotated(q))

# The caller counts; then each new row attends to the cache up to itself.
lengths += given.rows
o = to_host(tw.attention(appended.q, CACHE_K, CACHE_V, seqlens_k=to_device(lengths), causal="bottom_right"))
for index, length in enumerate(lengths):
    keys = [cache[index : index + 1, :length] for cache in (expected_k, expected_v)]
    visible = np.tri(given.rows, length, length - given.rows, dtype=bool)
    expected = _exact.attention(rotated(q)[index : index + 1], *keys, visible=visible).o
    check(f"sequence of {length} keys", o[index : index + 1], expected)
