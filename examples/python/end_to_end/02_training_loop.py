"""A training loop without a framework: an attention layer whose products and gradients are Tilewright's calls.

The same code runs in float64 on NumPy beside it: the loss falls, and follows the reference step by step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import Array, check, normal, options, to_device, to_host

given = options(__doc__, steps=12, batch=8, seqlen=24)
rng = np.random.default_rng(0)
vocabulary, heads, head_dim = 16, 2, 32
width = heads * head_dim
weights = {"embedding": normal(rng, vocabulary, width)}
for name, rows in (("qkv", 3 * width), ("out", width), ("head", vocabulary)):
    weights[name] = normal(rng, rows, width) / np.float32(8)

# What a step needs of a library: a product, attention with its lse, and the gradients of attention.
Library = tuple[Callable[..., Array], Callable[..., Any], Callable[..., Any]]
ours: Library = (
    lambda a, b: to_host(tw.gemm(*to_device(a, b))),
    lambda *qkv: [to_host(x) for x in tw.attention(*to_device(*qkv), causal=True, return_lse=True)],
    lambda *saved: [to_host(x) for x in tw.attention_backward(*to_device(*saved), causal=True)],
)
causal = np.tri(given.seqlen, dtype=bool)
exact: Library = (
    lambda a, b: np.asarray(a @ b),
    lambda q, k, v: _exact.attention(q, k, v, visible=causal)[:2],
    lambda do, q, k, v, o, lse: _exact.attention_backward(do, q, k, v, visible=causal)[:3],
)


def step(library: Library, weights: dict[str, Array], tokens: Array, rate: float) -> float:
    """One step of gradient descent on the cross entropy of the next token; the loss before it."""
    mm, attention, gradients = library
    inputs, labels = tokens[:, :-1].ravel(), tokens[:, 1:].ravel()
    x = weights["embedding"][inputs]
    shape = (given.batch, given.seqlen, heads, head_dim)
    q, k, v = (part.copy().reshape(shape) for part in np.split(mm(x, weights["qkv"].T), 3, axis=1))
    o, lse = attention(q, k, v)
    hidden = x + mm(flat := o.reshape(-1, width), weights["out"].T)
    logits = mm(hidden, weights["head"].T)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances, picked = exponents / exponents.sum(axis=1, keepdims=True), (np.arange(len(labels)), labels)
    loss = -np.log(chances[picked]).mean()

    chances[picked] -= 1
    dlogits = chances / len(labels)
    dhidden = mm(dlogits, weights["head"])
    do = mm(dhidden, weights["out"]).reshape(shape)
    dqkv = np.concatenate([one.reshape(-1, width) for one in gradients(do, q, k, v, o, lse)], axis=1)
    dembedding = np.zeros_like(weights["embedding"])
    np.add.at(dembedding, inputs, dhidden + mm(dqkv, weights["qkv"]))
    changes = {"head": mm(dlogits.T, hidden), "out": mm(dhidden.T, flat), "qkv": mm(dqkv.T, x), "embedding": dembedding}
    for name, change in changes.items():
        weights[name] = weights[name] - weights[name].dtype.type(rate) * change
    return float(loss)


reference = {name: array.astype(np.float64) for name, array in weights.items()}
# A token repeats the one three places before it: something that only attention can see.
first = rng.integers(0, vocabulary, (given.batch, 3))
tokens = np.tile(first, (1, given.seqlen // 3 + 1))[:, : given.seqlen + 1]
pairs = [(step(ours, weights, tokens, 0.5), step(exact, reference, tokens, 0.5)) for _ in range(given.steps)]
print(f"loss {pairs[0][0]:.4f}, after {given.steps} steps {pairs[-1][0]:.4f} (float64: {pairs[-1][1]:.4f})")
check("losses", np.array(pairs, np.float32)[:, 0], np.array(pairs)[:, 1], tolerance=1e-3)
check("trained qkv", weights["qkv"], reference["qkv"], tolerance=1e-3)
if not pairs[-1][0] < 0.7 * pairs[0][0]:
    sys.exit("the loss did not fall")
