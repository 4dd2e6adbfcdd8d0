"""A problem as the selection library takes it on every backend (`include/tilewright/select/attention_backward.h`)."""

from __future__ import annotations

from tilewright.dtypes import DTYPES
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import ACCUMULATES, FAMILIES
from tilewright.ops.attention_terms import BIASES, FLOATS, MOST_WINDOW

PROBLEM = (
    "family", "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "type", "size",
    "size_aux", "bottom_right", "window_left", "window_right", "sink_tokens", "bias", "bias_batch", "bias_heads",
    "bias_rows", "bias_keys", "masked", "mask_batch", "mask_heads", "mask_rows", "mask_keys", "softcap", "dropout",
    "varlen", "total_q", "total_k", "seqlens_q", "seqlens_k", "dlse", "dsink", "dbias", "dalibi", "deterministic",
    "accumulate", "q_batch", "q_row", "q_head", "k_batch", "k_row", "k_head", "v_batch", "v_row", "v_head", "o_batch",
    "o_row", "o_head", "do_batch", "do_row", "do_head", "dq_batch", "dq_row", "dq_head", "dk_batch", "dk_row",
    "dk_head", "dv_batch", "dv_row", "dv_head", "aligned", "dkv_splits",
)  # fmt: skip
_FAMILIES, _BIASES, _ACCUMULATES, _TYPES = (
    {word: number for number, word in enumerate(words)} for words in (FAMILIES, BIASES, ACCUMULATES, FLOATS)
)
_SIZES = {name: each.bytes for name, each in DTYPES.items()}
_NONE = (1, 1, 1, 1)


def problem_numbers(p: AttentionBackwardProblem) -> tuple[int, ...]:
    """Of a stage that breaks no rule."""
    return (
        _FAMILIES[p.family or "grad"], p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim,
        p.head_dim_v, _TYPES.get(p.dtype, -1), _SIZES[p.dtype], _SIZES[p.dtype_aux], p.align == "bottom_right",
        min(p.window_left, MOST_WINDOW), min(p.window_right, MOST_WINDOW), p.sink_tokens, _BIASES[p.bias],
        *(p.bias_shape or _NONE), bool(p.mask_shape), *(p.mask_shape or _NONE), p.softcap, p.dropout, p.varlen,
        p.total_q, p.total_k, p.seqlens_q, p.seqlens_k, p.dlse, p.dsink, p.dbias, p.dalibi, p.deterministic,
        _ACCUMULATES[p.accumulate or "none"], *p.q_strides, *p.k_strides, *p.v_strides, *p.o_strides, *p.do_strides,
        *p.dq_strides, *p.dk_strides, *p.dv_strides, p.aligned, p.dkv_heads // p.heads_kv,
    )  # fmt: skip
