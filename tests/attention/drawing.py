"""Attention problems drawn by seed: a kind of kernel (what it has), then problems of it, small and awkward."""

from __future__ import annotations

import random
from typing import Any

from tilewright import ops
from tilewright.dtypes import DTYPES
from tilewright.ops.attention import AttentionProblem

ATTENTION = ops.op("attention")
Kind = dict[str, Any]
TYPES = (("fp32", "fp32"), ("fp32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "fp8_e4m3"),
         ("fp8_e4m3", "fp8_e4m3"))  # fmt: skip
LENGTHS = (0, 1, 2, 3, 7, 16, 17, 31, 64, 65, 97)


def kind(draw: random.Random, family: str = "") -> Kind:
    """What a kernel has: each feature by chance, so that they meet."""
    family = family or draw.choices(("forward", "split", "combine", "append"), (6, 2, 1, 2))[0]
    q, kv = draw.choice(TYPES)
    found: Kind = {"family": family, "dtype_q": q, "dtype_kv": kv}
    if family == "append":
        q, kv = draw.choice((("fp32", ""), ("fp16", ""), ("bf16", ""), ("fp32", "fp8_e4m3"), ("bf16", "fp8_e4m3"),
                             ("fp8_e4m3", "")))  # fmt: skip
        found |= {"dtype_q": q, "dtype_kv": kv, "rotary": draw.choice(("none", "interleaved", "half"))}
        if kv:
            found["scales"] = draw.choice(("none", "tensor", "head", "block"))
    else:
        found["dtype_out"] = "fp32" if family == "split" else draw.choice(("fp32", "fp16", "bf16"))
        found["varlen"] = draw.random() < 0.3
    if family in ("append", "forward", "split") and draw.random() < 0.4:
        found |= {"pages": draw.choice(("strided", "strided", "vectorised")), "page_lookup": "table"}
        if family != "append" and draw.random() < 0.4:
            found["page_lookup"] = "indices"
    if family in ("append", "combine"):
        return found
    found["mask"] = draw.choice(("none", "window", "window", "generic"))
    found["bias"] = draw.choice(("none", "none", "tensor", "alibi"))
    if found["bias"] == "tensor" and q in ("fp16", "bf16"):
        found["dtype_aux"] = draw.choice(("fp32", q))
    found |= {one: draw.random() < 0.25 for one in ("masked", "softcap", "dropout", "sink")}
    if kv == "fp8_e4m3":
        found["scales"] = draw.choice(("none", "tensor", "head", "block"))
    return found


def problem(draw: random.Random, of: Kind, heads: tuple[int, ...] = (8, 16, 24, 32)) -> AttentionProblem:
    """One problem of a kind; heads are no larger than 32, so that all have the same signature."""
    of = dict(of)
    mask, masked, scales = of.pop("mask", "none"), of.pop("masked", False), of.pop("scales", "none")
    group = draw.choice((1, 1, 2, 3))
    heads_kv = draw.choice((1, 2, 3))
    batch, rows, keys = draw.choice((1, 2, 3, 4)), draw.choice(LENGTHS), draw.choice(LENGTHS)
    paged = of.get("pages", "none") != "none"
    head_dim, head_dim_v = draw.choice(heads), draw.choice(heads)
    if of["family"] == "append":
        rows, keys = min(rows, 9), max(keys, 12)
        of |= {"rotary_q": draw.random() < 0.5, "seqlens_k": True}
        of["rotary_dim"] = draw.randrange(2, head_dim + 1, 2) if of["rotary"] != "none" else 0
    if paged:
        vector = 16 // DTYPES[of["dtype_kv"] or of["dtype_q"]].bytes
        of["page_size"] = draw.choice((vector, 2 * vector)) if of["pages"] == "vectorised" else draw.choice((1, 3, 16))
        if of["pages"] == "vectorised":
            head_dim = max(vector, head_dim // vector * vector)
            of["rotary_dim"] = min(of.get("rotary_dim", 0), head_dim)
        of["seqlens_k"] = of["page_lookup"] == "table"
    elif of["family"] in ("forward", "split"):
        of["seqlens_k"] = draw.random() < 0.3
    if of["family"] != "append" or of["rotary"] != "none":
        of["seqlens_q"] = draw.random() < 0.3
    if of.get("varlen"):
        of["total_q"] = draw.randint(0, batch * rows) or batch * rows
        of["total_k"] = 0 if paged else draw.randint(0, batch * keys) or batch * keys
    if mask != "none":
        left = draw.choice((0, 1, 5, 40)) if mask == "generic" else draw.choice((-1, 0, 5))
        right = draw.choice((-1, 0, 3)) if left >= 0 else draw.choice((0, 2))
        of |= {"window_left": left, "window_right": right, "align": draw.choice(("top_left", "bottom_right"))}
        of["sink_tokens"] = draw.choice((1, 4)) if mask == "generic" else 0
    full = (batch, heads_kv * group, rows, keys)
    for name, there in (("mask_shape", masked), ("bias_shape", of.get("bias") == "tensor")):
        if there:
            of[name] = tuple(draw.choice((1, size)) if size else size for size in full)
    if of["family"] in ("split", "combine"):
        of["num_splits"] = draw.choice((1, 2, 3, 5))
    if scales != "none":
        of |= {"kv_scales": scales, "q_scale": draw.choice(("none", "tensor", scales)), "scale_block": 16}
        if of["dtype_q"] != "fp8_e4m3" or of["family"] == "append":
            of["q_scale"] = "none"
    if of["family"] == "combine":
        return AttentionProblem(batch, heads_kv * group, rows, 0, head_dim_v, return_lse=True, **{**of, "dtype_kv": ""})
    return AttentionProblem(batch, heads_kv * group, rows, keys, head_dim, heads_kv, head_dim_v,
                            return_lse=of["family"] == "forward", **of)  # fmt: skip


def gapped(draw: random.Random, made: AttentionProblem) -> AttentionProblem:
    """The same with elements that belong to nobody behind rows, or heads before rows."""
    from dataclasses import replace

    found = {}
    for name in "qkvo":
        _, rows, heads, size = made.shape(name)
        batch, row, head = getattr(made, f"{name}_strides")
        if (name == "o" and made.family == "split") or (name in "kv" and made.pages == "vectorised"):
            continue
        gap = draw.choice((0, 0, 8))
        if draw.random() < 0.4:
            row, head = size + gap, max(1, rows) * (size + gap)
        else:
            head, row = size + gap, max(1, heads) * (size + gap) + gap
        found[f"{name}_strides"] = (batch and max(row * max(1, rows), head * max(1, heads)) + gap, row, head)
    return replace(made, **found)  # type: ignore[arg-type]
