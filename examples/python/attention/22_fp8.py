"""fp8 (e4m3): queries and cache in 8 bits with scales, or bf16 queries with an fp8 cache, which append_kv quantizes."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, seqlen=64)
rng = np.random.default_rng(20)
e4m3, bf16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
wide_q, wide_k, wide_v = (normal(rng, 2, given.seqlen, heads, 64) for heads in (4, 2, 2))

# A stored value times its scale is the value meant: scales are chosen so that the largest value becomes 448.
scales = [float(np.abs(x).max()) / 448 for x in (wide_q, wide_k, wide_v)]
q, k, v = ((x / scale).astype(e4m3) for x, scale in zip((wide_q, wide_k, wide_v), scales, strict=True))
meant = [x.astype(np.float64) * scale for x, scale in zip((q, k, v), scales, strict=True)]
o = tw.attention(*to_device(q, k, v), q_scale=scales[0], kv_scales=(scales[1], scales[2]))
check("fp8 q, k, v; result bf16", o, _exact.attention(*meant).o, tolerance=0.06)  # weights are fp8 too
exact_o = _exact.attention(wide_q, wide_k, wide_v).o
lost = np.abs(to_host(o).astype(np.float64) - exact_o).max() / np.abs(exact_o).max()
print(f"quantization and kernel together are {lost:.1%} off the unquantized result")

# A server: queries in bf16, a cache in fp8. append_kv divides by the scales and rounds.
cache_k, cache_v = (to_device(np.zeros(k.shape, e4m3)) for _ in range(2))
rows_k, rows_v, rows_q = (x.astype(bf16) for x in (wide_k, wide_v, wide_q))
lengths = to_device(np.zeros(2, np.int32))
per_head = [np.full(2, scale, np.float32) for scale in scales[1:]]  # one scale for each KV head
kv_scales = tuple(to_device(*per_head))
tw.append_kv(cache_k, cache_v, *to_device(rows_k, rows_v), cache_seqlens=lengths, kv_scales=kv_scales)
stored = [
    to_host(cache).astype(np.float64) * scale for cache, scale in zip((cache_k, cache_v), scales[1:], strict=True)
]
check("the cache", (stored[0]).astype(np.float32), rows_k.astype(np.float64), tolerance=0.04)
o = tw.attention(to_device(rows_q), cache_k, cache_v, kv_scales=kv_scales)
check("bf16 q, fp8 cache", o, _exact.attention(rows_q, *stored).o)
