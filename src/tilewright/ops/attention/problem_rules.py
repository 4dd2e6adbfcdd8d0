"""What makes an attention one that some kernel can compute, on whatever target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter

from tilewright.dtypes import DTYPES
from tilewright.errors import an, nearest
from tilewright.ops.attention.problem import OPERANDS, AttentionProblem
from tilewright.ops.attention.spec import SCALES, WORDS, AttentionSignature, signature_violations
from tilewright.ops.attention_problems import head_rules, shape_rules, size_rules, window_rules
from tilewright.ops.attention_terms import ALIGNMENTS, MAX_SIZE, MOST_HEAD
from tilewright.ops.base import Violation
from tilewright.ops.rules import BySignature
from tilewright.ops.spans import too_far, written_apart

MOST_SPLITS = 128
MOST_PAGE = 1024
COUNTS = ("batch", "seqlen_q", "seqlen_k", "total_q", "total_k", "page_count", "sink_tokens", "scale_block",
          "num_splits")  # fmt: skip


# Sizes and strides up to these need no product to be worked out: what operands span stays under `spans.MAX_SPAN`.
_SMALL_COUNT, _SMALL_LENGTH, _SMALL_STRIDE = 1 << 12, 1 << 24, 1 << 34
_plain_words = attrgetter(
    "varlen", "pages", "bias_shape", "mask_shape", "bias", "q_scale", "kv_scales", "rotary_dim", "rotary_q", "total_q",
    "total_k", "page_count", "scale_block",
)  # fmt: skip
_PLAIN_WORDS = (False, "none", (), (), "none", "none", "none", 0, False, 0, 0, 0, 0)


def _plainly_legal(p: AttentionProblem) -> bool:
    """Whether a problem of dense or strided operands and nothing else breaks no rule on numbers, by comparisons alone;
    false where that would take more."""
    if p.family != "forward" or _plain_words(p) != _PLAIN_WORDS:
        return False
    if not (0 <= p.batch <= _SMALL_COUNT and 1 <= p.heads_kv <= p.heads_q <= _SMALL_COUNT):
        return False
    if not (0 <= p.seqlen_q <= _SMALL_LENGTH and 0 <= p.seqlen_k <= _SMALL_LENGTH and 0 <= p.num_splits <= MOST_SPLITS):
        return False
    size, size_v, q, k, v = p.head_dim, p.head_dim_v, p.q_strides, p.k_strides, p.v_strides
    row = p.heads_q * size_v
    return (
        1 <= size <= MOST_HEAD
        and 1 <= size_v <= MOST_HEAD
        and not p.heads_q % p.heads_kv
        and p.window_left >= -1
        and p.window_right >= -1
        and 0 <= p.sink_tokens < MAX_SIZE
        and len(q) == len(k) == len(v) == 3
        and min(*q, *k, *v) >= -_SMALL_STRIDE
        and max(*q, *k, *v) <= _SMALL_STRIDE
        and p.o_strides == (p.seqlen_q * row, row, size_v)
    )


def problem_violations(problem: AttentionProblem) -> list[Violation]:
    """Every rule that is broken; those on numbers only where the names are right."""
    if _plainly_legal(problem) and _all_known(_named(problem)):
        return list(_of_signature(problem.signature))
    return every_violation(problem)


def every_violation(problem: AttentionProblem) -> list[Violation]:
    """The same, rule by rule."""
    violations = list(_names(problem)) or list(_sizes(problem))
    if not violations:
        violations = [*_heads(problem), *window_rules(problem), *_tables(problem), *_shapes(problem)]
    return violations or [*_of_signature(problem.signature), *_spans(problem)]


@lru_cache(maxsize=1024)
def _checked(signature: AttentionSignature, _arch: str) -> tuple[Violation, ...]:
    return tuple(signature_violations(signature))


_signature_check = BySignature(_checked)


def _of_signature(signature: AttentionSignature) -> tuple[Violation, ...]:
    violations: tuple[Violation, ...] = _signature_check(signature, "")
    return violations


_DTYPES = ("dtype_q", "dtype_kv", "dtype_out", "dtype_aux")
_named = attrgetter(*(name for name in WORDS if name != "scales"), "kv_scales", "q_scale", "align", *_DTYPES)


@lru_cache(maxsize=1024)  # of the words of a problem: those of new sizes are old ones
def _all_known(words: tuple[str, ...]) -> bool:
    known = (*(values for name, values in WORDS.items() if name != "scales"), SCALES, SCALES, ALIGNMENTS)
    return all(word in values for word, values in zip(words, (*known, *(DTYPES,) * len(_DTYPES)), strict=True))


def _names(p: AttentionProblem) -> Iterator[Violation]:
    if _all_known(_named(p)):
        return
    for name, known in WORDS.items():
        value = p.kv_scales if name == "scales" else getattr(p, name)
        if value not in known:
            yield Violation(
                f"{name.replace('_', '-')}-name", f"{name} {value!r} is not known", nearest(str(value), list(known))
            )
    if p.q_scale not in SCALES:
        yield Violation("scales-name", f"scales {p.q_scale!r} are not known", nearest(p.q_scale, list(SCALES)))
    if p.align not in ALIGNMENTS:
        yield Violation("align-name", f"align {p.align!r} is not known", nearest(p.align, list(ALIGNMENTS)))
    for name in _DTYPES:
        if getattr(p, name) not in DTYPES:
            value = getattr(p, name)
            yield Violation("dtype-name", f"{value!r} is not an element type", nearest(value, list(DTYPES)))


def _sizes(p: AttentionProblem) -> Iterator[Violation]:
    yield from size_rules(p, COUNTS)
    if p.num_splits > MOST_SPLITS:
        yield Violation("splits", f"{p.num_splits} splits, and at most {MOST_SPLITS} can be combined",
                        f"use 1 to {MOST_SPLITS}, or leave it out")  # fmt: skip
    if p.family in ("split", "combine") and p.num_splits < 1:
        yield Violation("splits", f"{an(p.family)} of {p.num_splits} splits", "use 1 or more")


def _heads(p: AttentionProblem) -> Iterator[Violation]:
    yield from head_rules(p)
    if p.rotary_dim % 2 or p.rotary_dim > p.head_dim or p.rotary_dim < 0:
        message = f"rotary_dim is {p.rotary_dim}, and head_dim {p.head_dim}"
        yield Violation("rotary-size", message, f"use an even number up to {p.head_dim}")


def _tables(p: AttentionProblem) -> Iterator[Violation]:
    if p.pages == "none":
        return
    if not 1 <= p.page_size <= MOST_PAGE:
        yield Violation("page-size", f"a page of {p.page_size} slots", f"use 1 to {MOST_PAGE}")
        return
    vector = 16 // DTYPES[p.dtype_kv].bytes
    if p.pages == "vectorised":
        if p.page_size % vector:
            message = f"a vectorised page of {p.page_size} slots of {p.dtype_kv}"
            yield Violation("page-vector", message, f"use a multiple of {vector} slots, or another layout")
        if p.head_dim % vector:
            message = f"vectorised keys of {p.head_dim} elements of {p.dtype_kv}"
            yield Violation("page-vector", message, f"use heads of a multiple of {vector}, or another layout")
    if p.varlen is False and p.page_lookup == "indices" and p.family == "append":
        yield Violation("page-lookup", "append finds pages by a block table only", "give block_table as (batch, pages)")


def _shapes(p: AttentionProblem) -> Iterator[Violation]:
    yield from shape_rules(p, OPERANDS)
    if p.family == "append" and (p.q_scale != "none" or (p.kv_scales != "none" and p.dtype_kv == p.dtype_q)):
        message = f"scales are given, and new rows of {p.dtype_q} are appended to a cache of {p.dtype_kv} unscaled"
        yield Violation(
            "scales-dtype", message, "leave the scales out, or give a cache of fp8 and rows of another type"
        )
    if "block" in (p.q_scale, p.kv_scales) and p.scale_block < 1:
        yield Violation("scale-block", f"scales for each {p.scale_block} rows", "give scale_block, 1 or more")


def _spans(p: AttentionProblem) -> Iterator[Violation]:
    for name, strides in zip(OPERANDS, (p.q_strides, p.k_strides, p.v_strides, p.o_strides), strict=True):
        yield from too_far(name, p.shape(name), strides)
    if p.family in ("forward", "combine") or p.rotary_q:
        yield from written_apart("o", p.shape("o"), (*p.o_strides, 1))
    if p.family == "append" and p.pages != "vectorised":
        for name in "kv":
            yield from written_apart(f"cache_{name}", p.shape(name), (*getattr(p, f"{name}_strides"), 1))
