"""An attention problem as the selection library takes it on every backend (`include/tilewright/select/attention.h`)."""

from __future__ import annotations

from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import FAMILIES, INPUTS, LOOKUPS, PAGES
from tilewright.ops.attention_terms import BIASES, MOST_WINDOW

PROBLEM = (
    "family", "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "type_q", "size_q",
    "size_kv", "size_out", "size_aux", "bottom_right", "window_left", "window_right", "sink_tokens", "bias",
    "bias_batch", "bias_heads", "bias_rows", "bias_keys", "masked", "mask_batch", "mask_heads", "mask_rows",
    "mask_keys", "softcap", "varlen", "total_q", "total_k", "seqlens_q", "seqlens_k", "pages", "page_lookup",
    "page_size", "page_count", "num_splits", "rotary_dim", "rotary_q", "q_batch", "q_row", "q_head", "k_batch",
    "k_row", "k_head", "v_batch", "v_row", "v_head", "o_batch", "o_row", "o_head", "aligned",
)  # fmt: skip
_FAMILIES, _BIASES, _PAGES, _LOOKUPS, _TYPES = (
    {word: number for number, word in enumerate(words)} for words in (FAMILIES, BIASES, PAGES, LOOKUPS, INPUTS)
)
_SIZES = {name: each.bytes for name, each in DTYPES.items()}
_NONE = (1, 1, 1, 1)


def problem_numbers(p: AttentionProblem) -> tuple[int, ...]:
    """Of a problem that breaks no rule."""
    return (
        _FAMILIES[p.family], p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, p.head_dim_v,
        _TYPES.get(p.dtype_q, -1), _SIZES[p.dtype_q], _SIZES[p.dtype_kv], _SIZES[p.dtype_out], _SIZES[p.dtype_aux],
        p.align == "bottom_right", min(p.window_left, MOST_WINDOW), min(p.window_right, MOST_WINDOW), p.sink_tokens,
        _BIASES[p.bias], *(p.bias_shape or _NONE), bool(p.mask_shape), *(p.mask_shape or _NONE), p.softcap, p.varlen,
        p.total_q, p.total_k, p.seqlens_q, p.seqlens_k, _PAGES[p.pages], _LOOKUPS[p.page_lookup], p.page_size,
        p.page_count, p.num_splits, p.rotary_dim, p.rotary_q, *p.q_strides, *p.k_strides, *p.v_strides, *p.o_strides,
        p.aligned,
    )  # fmt: skip
