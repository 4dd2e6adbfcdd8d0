"""Attentions by a seed, of every kind that kernels tell apart: stages, heads, types, windows, pages, strides."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tilewright import ops
from tilewright.ops.attention.problem import AttentionProblem

TYPES = ("bf16", "bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e4m3fnuz")
HEADS = (50, 64, 128, 128, 128, 32, 40, 72, 80, 96, 160, 192, 256, 576)
FAMILIES = ("forward",) * 6 + ("split", "split", "combine", "append")


def _length(r: random.Random) -> int:
    kind = r.random()
    if kind < 0.05:
        return 0
    if kind < 0.4:
        return r.choice((1, 1, 1, 2, 4, 8, 16, 64, 128))
    return r.randrange(1, 300) if kind < 0.6 else r.randrange(1, 1 << r.choice((12, 14, 17, 20, 30)))


def _window(r: random.Random) -> dict[str, Any]:
    kind = r.random()
    if kind < 0.4:
        return {}
    align = r.choice(("top_left", "bottom_right"))
    if kind < 0.7:
        return {"window_right": 0, "align": align}
    right = r.choice((-1, 0, 0, 100))
    return {"window_left": r.randrange(4096), "window_right": right, "align": align,
            "sink_tokens": r.choice((0, 0, 4, 5000))}  # fmt: skip


def _features(r: random.Random, batch: int, heads: int, rows: int, keys: int, dtype: str) -> dict[str, Any]:
    features: dict[str, Any] = {}
    shape = tuple(size if r.random() < 0.6 else 1 for size in (batch, heads, rows, keys))
    kind = r.random()
    if kind < 0.1:
        aux = dtype if dtype in ("bf16", "fp16") and r.random() < 0.7 else "fp32"
        features |= {"bias": "tensor", "dtype_aux": aux, "bias_shape": shape}
    elif kind < 0.2:
        features["bias"] = "alibi"
    elif kind < 0.3:
        features["mask_shape"] = shape
    features |= {name: True for name in ("softcap", "dropout", "return_lse", "sink") if r.random() < 0.1}
    if r.random() < 0.2:
        features |= {"seqlens_q": r.random() < 0.3, "seqlens_k": True}
    return features


def _layout(r: random.Random, batch: int, rows: int, keys: int) -> dict[str, Any]:
    """Packed sequences, pages, or neither."""
    layout: dict[str, Any] = {}
    if r.random() < 0.25:
        layout = {"varlen": True, "total_q": max(1, batch * rows // r.choice((1, 2, 3))),
                  "total_k": max(1, batch * keys // r.choice((1, 2, 3)))}  # fmt: skip
    if r.random() < 0.3:
        layout |= {"pages": r.choice(("strided", "strided", "vectorised")),
                   "page_lookup": r.choice(("table", "table", "indices")),
                   "page_size": r.choice((1, 16, 16, 32, 64, 128, 24)), "seqlens_k": r.random() < 0.8}  # fmt: skip
    return layout


def _scales(r: random.Random, dtype: str, dtype_kv: str) -> dict[str, Any]:
    if not dtype_kv.startswith("fp8") or r.random() < 0.3:
        return {}
    kinds = ("none", "tensor", "head", "block")
    q_scale = r.choice(kinds) if dtype.startswith("fp8") else "none"
    return {"q_scale": q_scale, "kv_scales": r.choice(kinds), "scale_block": 128}


def _apart(r: random.Random, problem: AttentionProblem) -> AttentionProblem:
    """Sometimes with gaps between rows, heads outside of rows, or addresses that are not aligned."""
    kind = r.random()
    if kind < 0.6:
        return problem
    if kind < 0.7:
        return replace(problem, aligned=False)
    strides: dict[str, tuple[int, ...]] = {}
    for name in "qkvo":
        batch, row, head = getattr(problem, f"{name}_strides")
        if kind < 0.85:
            gap = r.choice((0, 1, 4, 8, 64))
            heads = problem.heads_q if name in "qo" else problem.heads_kv
            row = heads * head + gap if row else 0
            strides[f"{name}_strides"] = (batch + gap * max(1, problem.seqlen_q + problem.seqlen_k), row, head)
        elif row and not problem.varlen and problem.pages == "none":
            rows = problem.seqlen_q if name in "qo" else problem.seqlen_k
            strides[f"{name}_strides"] = (batch, head, max(1, rows) * head)
    return replace(problem, **strides)  # type: ignore[arg-type]


def _problem(r: random.Random) -> AttentionProblem:
    family, dtype = r.choice(FAMILIES), r.choice(TYPES)
    dtype_kv = r.choice(("fp8_e4m3", "fp8_e4m3fnuz")) if dtype in ("bf16", "fp16") and r.random() < 0.2 else dtype
    batch = r.choice((1, 1, 2, 7, 64, 0)) if r.random() < 0.9 else r.choice((r.randrange(1, 300), 1 << 17))
    heads_kv, rows, keys, head = r.choice((1, 2, 8, 16)), _length(r), _length(r), r.choice(HEADS)
    heads_q, head_v = heads_kv * r.choice((1, 1, 2, 4, 8, 16)), head if r.random() < 0.8 else r.choice(HEADS)
    if head == 576 and r.random() < 0.8:
        head_v = 512
    if family == "append":
        rotary = r.choice(("none", "interleaved", "half"))
        turned: dict[str, Any] = {"rotary": rotary, "rotary_dim": r.choice((0, 32, 24))} if rotary != "none" else {}
        turned |= {"dtype_aux": dtype} if rotary != "none" and r.random() < 0.5 else {}
        pages: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "page_size": r.choice((16, 64, 128))}
        return AttentionProblem(
            batch, heads_q, rows, max(rows, keys), head, heads_kv, head_v, "append", dtype, dtype_kv,
            rotary_q=rotary != "none" and r.random() < 0.5, seqlens_q=r.random() < 0.2,
            **turned, **(pages if r.random() < 0.5 else {}),
        )  # fmt: skip
    features = _features(r, batch, heads_q, rows, keys, dtype) | _layout(r, batch, rows, keys)
    whole = AttentionProblem(
        batch, heads_q, rows, keys, head, heads_kv, head_v, "forward", dtype, dtype_kv,
        **_window(r), **features, **_scales(r, dtype, dtype_kv),
    )  # fmt: skip
    splits = r.choice((1, 2, 3, 8, 13, 32, 128))
    return whole if family == "forward" else whole.part(splits) if family == "split" else whole.combined(splits)


def problem(r: random.Random, target: str) -> AttentionProblem:
    """One that the target has kernels for."""
    op = ops.op("attention")
    while True:
        drawn = _apart(r, _problem(r))
        if not op.problem_violations(drawn, target):
            return drawn
