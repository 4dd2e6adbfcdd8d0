"""What makes the gradients of an attention ones that some kernel can compute, on whatever target."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dtypes import DTYPES
from tilewright.errors import nearest
from tilewright.ops.attention_backward.problem import OPERANDS, AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import ACCUMULATES, FAMILIES, signature_violations
from tilewright.ops.attention_problems import head_rules, shape_rules, size_rules, window_rules
from tilewright.ops.attention_terms import ALIGNMENTS, BIASES
from tilewright.ops.base import Violation
from tilewright.ops.spans import too_far, written_apart

COUNTS = ("batch", "seqlen_q", "seqlen_k", "total_q", "total_k", "sink_tokens")
_WORDS = {"family": ("", *FAMILIES), "bias": BIASES, "align": ALIGNMENTS, "accumulate": ("", *ACCUMULATES)}
MOST_PARTS = 1024  # partial sums of dk and dv per KV head
WRITTEN = ("dq", "dk", "dv")


def problem_violations(problem: AttentionBackwardProblem) -> list[Violation]:
    """Every rule that is broken; those on numbers only where the names are right."""
    violations = list(_names(problem)) or list(_sizes(problem))
    if not violations:
        violations = [*head_rules(problem), *window_rules(problem), *_shapes(problem)]
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
    yield from size_rules(p, COUNTS)
    if not 0 <= p.dkv_splits <= MOST_PARTS:
        yield Violation(
            "dkv-splits", f"dkv_splits is {p.dkv_splits}", f"use 1 to {MOST_PARTS}, or 0 for one a query head"
        )


def _shapes(p: AttentionBackwardProblem) -> Iterator[Violation]:
    yield from shape_rules(p, OPERANDS)
    if p.family == "convert" and not p.converted:
        yield Violation("accumulate", "nothing is left to convert", f"use {' or '.join(ACCUMULATES[1:])}")


def _spans(p: AttentionBackwardProblem) -> Iterator[Violation]:
    for name in OPERANDS:
        yield from too_far(name, p.shape(name), getattr(p, f"{name}_strides"))
    for name in WRITTEN:
        yield from written_apart(name, p.shape(name), (*getattr(p, f"{name}_strides"), 1))
