"""Rules on problems that attention and its gradients share: sizes, heads, windows, and the shapes of their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ops.attention_terms import MAX_SIZE, MOST_HEAD
from tilewright.ops.base import Violation

_POSITIVE = ("heads_q", "heads_kv", "head_dim", "head_dim_v")


def size_rules(p: Any, counts: Sequence[str]) -> Iterator[Violation]:
    """`counts` may be 0; sizes of heads may not."""
    for name in counts:
        size = getattr(p, name)
        if size < 0:
            yield Violation("size-negative", f"{name} is {size}", "use 0 or more")
        elif size >= MAX_SIZE:
            yield Violation("size-huge", f"{name} is {size}, over {MAX_SIZE - 1}", "split the problem")
    for name in _POSITIVE:
        if getattr(p, name) < 1:
            yield Violation("size-positive", f"{name} is {getattr(p, name)}", "use 1 or more")


def head_rules(p: Any) -> Iterator[Violation]:
    if p.heads_q % p.heads_kv:
        below = p.heads_q // p.heads_kv * p.heads_kv
        counts = f"{below} or {below + p.heads_kv}" if below else f"{p.heads_kv}"
        yield Violation(
            "heads-divide",
            f"{p.heads_q} query heads are not a multiple of {p.heads_kv} KV heads",
            f"use {counts} query heads, or a divisor of {p.heads_q} for keys",
        )
    for name in ("head_dim", "head_dim_v"):
        if getattr(p, name) > MOST_HEAD:
            message = f"{name} is {getattr(p, name)}, and heads have at most {MOST_HEAD} elements"
            yield Violation("head-size", message, f"use 1 to {MOST_HEAD}")


def window_rules(p: Any) -> Iterator[Violation]:
    for name in ("window_left", "window_right"):
        if getattr(p, name) < -1:
            yield Violation("window", f"{name} is {getattr(p, name)}", "use 0 or more, or -1 for no bound")


def shape_rules(p: Any, operands: Sequence[str]) -> Iterator[Violation]:
    """Of a bias and a mask, which broadcast, and of the strides of operands."""
    full = (p.batch, p.heads_q, p.seqlen_q, p.seqlen_k)
    for name, shape in (("bias", p.bias_shape), ("mask", p.mask_shape)):
        if shape and (len(shape) != 4 or any(mine not in (1, size) for mine, size in zip(shape, full, strict=True))):
            wrong = f"does not broadcast to {full}" if len(shape) == 4 else f"has {len(shape)} sizes instead of 4"
            message = f"the {name} of shape {shape} {wrong}"
            yield Violation(f"{name}-shape", message, f"give sizes of {full}, or 1 where it repeats")
    if p.bias != "tensor" and p.bias_shape:
        yield Violation("bias-shape", f"bias_shape with bias {p.bias}", "use bias tensor, or leave the shape out")
    for name in operands:
        strides = getattr(p, f"{name}_strides")
        if len(strides) != 3:
            message = f"{name} has {len(strides)} strides"
            yield Violation("stride-rank", message, "give three: sequence, row, head; or none if dense")
