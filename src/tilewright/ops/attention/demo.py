"""The attention of `tilewright demo`: prefill, causal prefill, and a decode step over a KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ops.demo import Demo, torch_call, torch_device


def _numpy(problem: Any, kind: str) -> Callable[[], object] | None:
    """The textbook: scores, softmax, values."""
    if kind != "cpu":
        return None
    import numpy as np

    (batch, heads, rows, size), k = _shapes(problem)
    group = heads // k[1]
    # Heads of queries that share keys are rows of one product.
    query = np.ones((batch, k[1], group * rows, size), np.float32)
    key, value = np.ones(k, np.float32), np.ones(k, np.float32)
    future = np.triu(np.full((rows, k[2]), -np.inf, np.float32), 1)
    hidden = np.tile(future, (group, 1)) if _causal(problem) else None

    def textbook() -> object:
        scores = query @ key.swapaxes(-1, -2) * size**-0.5
        if hidden is not None:
            scores += hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ value

    return textbook


def _torch(problem: Any, kind: str) -> Callable[[], object]:
    import torch
    from torch.nn import functional

    device = torch_device(kind)
    q, k = _shapes(problem)
    query, key, value = (torch.ones(shape, device=device) for shape in (q, k, k))
    options = {"is_causal": _causal(problem), "enable_gqa": problem.heads_q != problem.heads_kv}
    return torch_call(lambda: functional.scaled_dot_product_attention(query, key, value, **options), kind)


def _shapes(problem: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of q and of k as (batch, heads, sequence, head), where both libraries want heads."""
    query = (problem.batch, problem.heads_q, problem.seqlen_q, problem.head_dim)
    return query, (problem.batch, problem.heads_kv, problem.seqlen_k, problem.head_dim)


def _causal(problem: Any) -> bool:
    return bool(problem.window_right == 0 and problem.seqlen_q > 1)


_PROMPT = {"batch": 1, "heads_q": 8, "seqlen_q": 512, "seqlen_k": 512, "head_dim": 64}

DEMO = Demo(
    problems={
        "prefill 512, 8 heads of 64": _PROMPT,
        "prefill 512, 8 heads, causal": {**_PROMPT, "causal": "top_left"},
        "decode 4096, 32 heads (GQA 8)": {
            "batch": 1, "heads_q": 32, "heads_kv": 8, "seqlen_q": 1, "seqlen_k": 4096, "head_dim": 128,
        },
    },
    peers={"NumPy": _numpy, "PyTorch": _torch},
    peer_notes={"NumPy": "attention by matrix products and softmax, in fp32"},
)  # fmt: skip
