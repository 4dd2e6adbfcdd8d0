"""Problems of attention's gradients drawn at random: every field that selection looks at, legal on the target."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tilewright import ops
from tilewright.ops.attention_backward.plans import accumulates, dkv_splits
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem

HEADS = (16, 32, 50, 64, 96, 128, 256)


def problem(draw: random.Random, target: str) -> AttentionBackwardProblem:
    """One whose way to compute it (`accumulate`) is said, of those the backend knows."""
    while True:
        drawn = AttentionBackwardProblem(**_fields(draw))
        if not ops.op("attention_backward").problem_violations(drawn, target):
            parts = draw.choice(dkv_splits(drawn, target))
            return replace(drawn, accumulate=draw.choice(accumulates(drawn, target)), dkv_splits=parts)


def _fields(draw: random.Random) -> dict[str, Any]:
    heads_kv = draw.choice((1, 2, 4))
    batch, rows, keys = draw.choice((1, 1, 2, 5)), draw.choice((1, 7, 64, 200, 1000)), draw.choice((1, 33, 128, 500))
    heads_q, size = heads_kv * draw.choice((1, 1, 2, 4)), draw.choice(HEADS)
    fields: dict[str, Any] = {
        "batch": batch, "heads_q": heads_q, "seqlen_q": rows, "seqlen_k": keys, "head_dim": size, "heads_kv": heads_kv,
        "head_dim_v": draw.choice((size, size, 64)), "dtype": draw.choice(("fp32", "fp16", "bf16")),
        "deterministic": draw.random() < 0.3, "aligned": draw.random() < 0.8, "dlse": draw.random() < 0.2,
        "dsink": draw.random() < 0.2, "softcap": draw.random() < 0.2, "dropout": draw.random() < 0.2,
        "seqlens_q": draw.random() < 0.2, "seqlens_k": draw.random() < 0.2,
    }  # fmt: skip
    window = draw.choice(((-1, -1), (-1, 0), (30, 0), (5, 9), (40, 0)))
    fields |= {"window_left": window[0], "window_right": window[1], "sink_tokens": draw.choice((0, 0, 4))}
    fields["align"] = draw.choice(("top_left", "bottom_right"))
    kind = draw.choice(("none", "none", "tensor", "alibi"))
    full = (batch, heads_q, rows, keys)
    if kind == "tensor":
        shape = tuple(draw.choice((1, extent)) for extent in full)
        fields |= {
            "bias_shape": shape,
            "dtype_aux": draw.choice(("fp32", fields["dtype"])),
            "dbias": draw.random() < 0.5,
        }
    fields |= {"bias": kind, "dalibi": kind == "alibi" and draw.random() < 0.5}
    if draw.random() < 0.2:
        fields["mask_shape"] = tuple(draw.choice((1, extent)) for extent in full)
    if draw.random() < 0.25 and kind != "tensor" and "mask_shape" not in fields:
        fields |= {"varlen": True, "total_q": rows * batch + draw.choice((0, 9)), "total_k": keys * batch}
    if draw.random() < 0.3 and not fields.get("varlen"):
        wide = size + draw.choice((0, 8))
        fields["q_strides"] = (rows * heads_q * wide, heads_q * wide, wide)
    return fields
