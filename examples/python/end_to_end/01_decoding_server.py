"""A decoding server: requests come and go, one batch a step, keys and values in pages that are given back at the end.

A toy decoder (one layer, greedy tokens); each request's logits are compared with a dense computation in float64.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import Array, check, normal, options, to_device, to_host

given = options(__doc__, requests=6, at_once=3, pages=16, page=8, seed=0)
rng = np.random.default_rng(given.seed)
vocabulary, heads, heads_kv, head_dim, longest = 50, 4, 2, 32, 40
width, kv_width, most = heads * head_dim, heads_kv * head_dim, -(-longest // given.page)
embedding = normal(rng, vocabulary, width)
qkv, out = normal(rng, width + 2 * kv_width, width) / np.float32(8), normal(rng, width, width) / np.float32(8)
angles = np.arange(longest)[:, None] / 10000.0 ** (np.arange(0, head_dim, 2) / head_dim)
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
EMBEDDING, QKV, OUT, *rotary = to_device(embedding.T, qkv.T, out.T, cos, sin)
pool_k, pool_v = (to_device(np.zeros((given.pages, given.page, heads_kv, head_dim), np.float32)) for _ in range(2))


def forward(tokens: Array, lengths: Array, table: Array) -> Array:
    """Logits of the last of `tokens` (B, rows), which follow `lengths` (B) tokens in the pages of `table` (B, most)."""
    batch, rows = tokens.shape
    x = to_device(embedding[tokens.ravel()])
    parts = np.split(to_host(tw.gemm(x, QKV)), [width, width + kv_width], axis=1)
    q, k, v = to_device(*(np.ascontiguousarray(part).reshape(batch, rows, -1, head_dim) for part in parts))
    pages = to_device(table)
    added = tw.append_kv(
        pool_k, pool_v, k, v, q=q, cache_seqlens=to_device(lengths), block_table=pages, rotary=(*rotary, "half")
    )
    seen = to_device(lengths + np.int32(rows))
    o = tw.attention(added.q, pool_k, pool_v, block_table=pages, seqlens_k=seen, causal="bottom_right")
    hidden = tw.gemm(to_device(to_host(o).reshape(batch * rows, width)), OUT, residual=x)
    return to_host(tw.gemm(hidden, EMBEDDING)).reshape(batch, rows, vocabulary)[:, -1]


def dense(tokens: list[int]) -> Array:
    """The same in float64: the whole sequence, no cache."""
    x = embedding[tokens].astype(np.float64)
    q, k, v = (y.reshape(1, len(tokens), -1, head_dim) for y in np.split(x @ qkv.T, [width, width + kv_width], axis=1))
    c, s = (part[: len(tokens), None] for part in (cos, sin))
    q, k = (np.concatenate([a * c - b * s, b * c + a * s], -1) for a, b in (np.split(y, 2, -1) for y in (q, k)))
    o = _exact.attention(q, k, v, visible=np.tri(len(tokens), dtype=bool)).o.reshape(len(tokens), width)
    return np.asarray((x + o @ out.T) @ embedding.T)


waiting = [
    (rng.integers(0, vocabulary, rng.integers(3, 20)).tolist(), int(rng.integers(2, 12))) for _ in range(given.requests)
]
free = list(range(given.pages))
if given.pages < most:
    sys.exit(f"a request may need {most} pages")
running: list[tuple[list[int], int, Array, list[Array]]] = []  # tokens, how many to make, pages, logits of each
steps, served = 0, 0
while waiting or running:
    while waiting and len(running) < given.at_once and len(free) >= most:  # admit: prefill a prompt
        prompt, count = waiting.pop(0)
        pages = np.array([free.pop(int(rng.integers(len(free)))) for _ in range(most)], np.int32)
        logits = forward(np.array([prompt]), np.zeros(1, np.int32), pages[None])[0]
        running.append(([*prompt, int(logits.argmax())], len(prompt) + count, pages, [logits]))
    batch = np.array([[tokens[-1]] for tokens, *_ in running])  # one step for all that run
    lengths = np.array([len(tokens) - 1 for tokens, *_ in running], np.int32)
    for request, logits in zip(running, forward(batch, lengths, np.stack([one[2] for one in running])), strict=True):
        request[0].append(int(logits.argmax()))
        request[3].append(logits)
    for tokens, _, pages, found in [one for one in running if len(one[0]) > one[1]]:
        check(f"request {served}: {len(found)} tokens", np.stack(found), dense(tokens[:-1])[-len(found) :], 1e-4)
        free, served = free + pages.tolist(), served + 1
    running, steps = [one for one in running if len(one[0]) <= one[1]], steps + 1
print(f"{served} requests in {steps} steps of up to {given.at_once}; {len(free)} of {given.pages} pages are free again")
