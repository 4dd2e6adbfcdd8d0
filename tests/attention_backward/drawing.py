"""Gradients of attentions drawn by seed: a kind of kernel (what it has), then problems of it, small and awkward."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tilewright import ops
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem import OPERANDS

BACKWARD = ops.op("attention_backward")
Kind = dict[str, Any]
LENGTHS = (0, 1, 2, 3, 7, 16, 17, 31, 64, 65, 97)


def kind(draw: random.Random, family: str = "", dtype: str = "") -> Kind:
    """What a kernel has: each feature by chance, so that they meet."""
    dtype = dtype or draw.choice(("fp32", "fp32", "fp16", "bf16"))
    found: Kind = {"family": family, "dtype": dtype, "varlen": draw.random() < 0.3}
    found["mask"] = draw.choice(("none", "window", "window", "generic"))
    found["bias"] = draw.choice(("none", "none", "tensor", "alibi"))
    if found["bias"] == "tensor" and dtype != "fp32":
        found["dtype_aux"] = draw.choice(("fp32", dtype))
    found |= {one: draw.random() < 0.25 for one in ("masked", "softcap", "dropout", "dlse", "dsink")}
    found["dbias"] = found["bias"] == "tensor" and draw.random() < 0.5
    found["dalibi"] = found["bias"] == "alibi" and draw.random() < 0.5
    return found


def problem(
    draw: random.Random,
    of: Kind,
    heads: tuple[int, ...] = (8, 16, 24, 31, 32),
    lengths: tuple[int, ...] = LENGTHS,
) -> AttentionBackwardProblem:
    """One problem of a kind; heads are no larger than 32, so that all have the same signature."""
    of = dict(of)
    mask, masked = of.pop("mask", "none"), of.pop("masked", False)
    group, heads_kv, batch = draw.choice((1, 1, 2, 3)), draw.choice((1, 2, 3)), draw.choice((1, 2, 3, 4))
    rows, keys = draw.choice(lengths), draw.choice(lengths)
    of["seqlens_q"], of["seqlens_k"] = draw.random() < 0.3, draw.random() < 0.3
    if of["varlen"]:
        of["total_q"] = draw.randint(0, batch * rows) or batch * rows
        of["total_k"] = draw.randint(0, batch * keys) or batch * keys
    if mask != "none":
        left = draw.choice((0, 1, 5, 40)) if mask == "generic" else draw.choice((-1, 0, 5))
        right = draw.choice((-1, 0, 3)) if left >= 0 else draw.choice((0, 2))
        of |= {"window_left": left, "window_right": right, "align": draw.choice(("top_left", "bottom_right"))}
        of["sink_tokens"] = draw.choice((1, 4)) if mask == "generic" else 0
    full = (batch, heads_kv * group, rows, keys)
    for name, there in (("mask_shape", masked), ("bias_shape", of["bias"] == "tensor")):
        if there:
            of[name] = tuple(draw.choice((1, size)) if size else size for size in full)
    sizes = draw.choice(heads), heads_kv, draw.choice(heads)
    return AttentionBackwardProblem(batch, heads_kv * group, rows, keys, *sizes, **of)


def gapped(draw: random.Random, made: AttentionBackwardProblem) -> AttentionBackwardProblem:
    """The same with elements that belong to nobody behind rows, or heads before rows."""
    found = {}
    for name in OPERANDS:
        _, rows, heads, size = made.shape(name)
        batch, row, head = getattr(made, f"{name}_strides")
        gap = draw.choice((0, 0, 8))
        if draw.random() < 0.4:
            row, head = size + gap, max(1, rows) * (size + gap)
        else:
            head, row = size + gap, max(1, heads) * (size + gap) + gap
        found[f"{name}_strides"] = (batch and max(row * max(1, rows), head * max(1, heads)) + gap, row, head)
    return replace(made, **found)  # type: ignore[arg-type]
