"""Attention written out for tests: float64, whole score matrices, one keyword a feature; its own words throughout."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def plain(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Any = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    mask: Array | None = None,
    bias: Array | None = None,
    alibi: Array | None = None,
    softcap: float = 0.0,
    sink_tokens: int = 0,
    sink: Array | None = None,
) -> tuple[Array, Array]:
    """q (sq, hq, d), k (sk, hk, d), v (sk, hk, dv) of one sequence: o (sq, hq, dv) and lse (hq, sq)."""
    sq, hq, d = q.shape
    sk, hk, _ = k.shape
    scale = d**-0.5 if scale is None else scale
    out, lse = np.zeros((sq, hq, v.shape[2])), np.full((hq, sq), -np.inf)
    bounded = causal is not False or max(window) >= 0
    shift = sk - sq if causal == "bottom_right" else 0
    for h in range(hq):
        kh = h // (hq // hk)
        for i in range(sq):
            logits, values = [], []
            for j in range(sk):
                at = i + shift
                if causal is not False and j > at:
                    continue
                if window[1] >= 0 and j > at + window[1]:
                    continue
                if window[0] >= 0 and j < at - window[0] and j >= sink_tokens:
                    continue
                if mask is not None and not mask[h if mask.shape[0] > 1 else 0, i, j]:
                    continue
                s = scale * float(np.dot(q[i, h].astype(np.float64), k[j, kh].astype(np.float64)))
                if softcap:
                    s = softcap * np.tanh(s / softcap)
                if bias is not None:
                    s += float(bias[h if bias.shape[0] > 1 else 0, i, j])
                if alibi is not None:
                    s -= float(alibi[h]) * abs(i + (shift if bounded else sk - sq) - j)
                logits.append(s)
                values.append(v[j, kh].astype(np.float64))
            extra = [] if sink is None else [float(sink[h])]
            if not logits and not extra:
                continue
            top = max(logits + extra)
            weights = np.exp(np.array(logits) - top)
            total = weights.sum() + np.exp(np.array(extra) - top).sum()
            lse[h, i] = top + np.log(total)
            if values:
                out[i, h] = (weights[:, None] * np.array(values)).sum(0) / total
    return out, lse


def batched(q: Array, k: Array, v: Array, **more: Any) -> tuple[Array, Array]:
    """The same of a batch; what has four dimensions is cut for each sequence."""
    found = []
    for b in range(len(q)):
        mine = {
            name: one[b if one.shape[0] > 1 else 0] if name in ("mask", "bias") else one for name, one in more.items()
        }
        found.append(plain(q[b], k[b], v[b], **mine))
    return np.stack([one for one, _ in found]), np.stack([one for _, one in found])
