"""What makes the gradients of an attention ones that some kernel can compute, on whatever target."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dtypes import DTYPES
from tilewright.errors import nearest
from tilewright.ops.attention_backward.problem import OPERANDS, AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import ACCUMULATES, FAMILIES, signature_violations
from tilewright.ops.attention_terms import ALIGNMENTS, BIASES, MAX_SIZE, MOST_HEAD
from tilewright.ops.base import Violation
from tilewright.ops.spans import too_far, written_apart

COUNTS = ("batch", "seqlen_q", "seqlen_k", "total_q", "total_k", "sink_tokens")
_WORDS = {"family": ("", *FAMILIES), "bias": BIASES, "align": ALIGNMENTS, "accumulate": ("", *ACCUMULATES)}
MOST_PARTS = 1024  # sums of dk and dv a head of keys
WRITTEN = ("dq", "dk", "dv")


def problem_violations(problem: AttentionBackwardProblem) -> list[Violation]:
    """Every rule that is broken; those on numbers only where the names are right."""
    violations = list(_names(problem)) or list(_sizes(problem))
    if not violations:
        violations = [*_heads(problem), *_shapes(problem)]
    return violations or [*signature_violations(problem.signature), *_spans(problem)]


def _names(p: AttentionBackwardProblem) -> Iterator[Violation]:
    for name, known in _WORDS.items():
        value = getattr(p, name)
        if value not in known:
            yield Violation(f"{name}-name", f"{name} {value!r} is not known", nearest(value, [*filter(None, known)]))
    for name in ("dtype", "dtype_aux"):
        value = getattr(p, name)
        if value not in DTYPES:
            yield Violation("dtype-name", f"{value!r} is not an element type", nearest(value, list(DTYPES)))


def _sizes(p: AttentionBackwardProblem) -> Iterator[Violation]:
    for name in COUNTS:
        size = getattr(p, name)
        if size < 0:
            yield Violation("size-negative", f"{name} is {size}", "use 0 or more")
        elif size >= MAX_SIZE:
            yield Violation("size-huge", f"{name} is {size}, over {MAX_SIZE - 1}", "split the problem")
    if not 0 <= p.dkv_splits <= MOST_PARTS:
        yield Violation(
            "dkv-splits", f"dkv_splits is {p.dkv_splits}", f"use 1 to {MOST_PARTS}, or 0 for one a query head"
        )
    for name in ("heads_q", "heads_kv", "head_dim", "head_dim_v"):
        if getattr(p, name) < 1:
            yield Violation("size-positive", f"{name} is {getattr(p, name)}", "use 1 or more")


def _heads(p: AttentionBackwardProblem) -> Iterator[Violation]:
    if p.heads_q % p.heads_kv:
        below = p.heads_q // p.heads_kv * p.heads_kv
        counts = f"{below} or {below + p.heads_kv}" if below else f"{p.heads_kv}"
        yield Violation(
            "heads-divide",
            f"{p.heads_q} query heads do not share {p.heads_kv} heads of keys evenly",
            f"use {counts} query heads, or a divisor of {p.heads_q} for keys",
        )
    for name in ("head_dim", "head_dim_v"):
        if getattr(p, name) > MOST_HEAD:
            message = f"{name} is {getattr(p, name)}, and heads have at most {MOST_HEAD} elements"
            yield Violation("head-size", message, f"use 1 to {MOST_HEAD}")
    for name in ("window_left", "window_right"):
        if getattr(p, name) < -1:
            yield Violation("window", f"{name} is {getattr(p, name)}", "use 0 or more, or -1 for no bound")


def _shapes(p: AttentionBackwardProblem) -> Iterator[Violation]:
    full = (p.batch, p.heads_q, p.seqlen_q, p.seqlen_k)
    for name, shape in (("bias", p.bias_shape), ("mask", p.mask_shape)):
        if shape and (len(shape) != 4 or any(mine not in (1, size) for mine, size in zip(shape, full, strict=True))):
            wrong = f"does not broadcast to {full}" if len(shape) == 4 else f"has {len(shape)} sizes instead of 4"
            message = f"the {name} of shape {shape} {wrong}"
            yield Violation(f"{name}-shape", message, f"give sizes of {full}, or 1 where it repeats")
    if p.bias != "tensor" and p.bias_shape:
        yield Violation("bias-shape", f"bias_shape with bias {p.bias}", "use bias tensor, or leave the shape out")
    for name in OPERANDS:
        strides = getattr(p, f"{name}_strides")
        if len(strides) != 3:
            message = f"{name} has {len(strides)} strides"
            yield Violation("stride-rank", message, "give three: sequence, row, head; or none if dense")
    if p.family == "convert" and not p.converted:
        yield Violation("accumulate", "nothing is left to convert", f"use {' or '.join(ACCUMULATES[1:])}")


def _spans(p: AttentionBackwardProblem) -> Iterator[Violation]:
    for name in OPERANDS:
        yield from too_far(name, p.shape(name), getattr(p, f"{name}_strides"))
    for name in WRITTEN:
        yield from written_apart(name, p.shape(name), (*getattr(p, f"{name}_strides"), 1))
