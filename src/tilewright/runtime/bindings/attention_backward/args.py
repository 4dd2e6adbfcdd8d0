"""The Python mirror of include/tilewright/attention_backward_args.h; a test compares it with the compiler."""

from __future__ import annotations

import ctypes

from tilewright.ops.attention_backward.problem import PREPARED_ROWS
from tilewright.runtime.bindings.attention.args import number_fields, pointer_fields, stride_fields

_Four = ctypes.c_int64 * 4
_Halves = ctypes.c_double * 2


class DotArgs(ctypes.Structure):
    """tw_attention_backward_dot_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "rows", "head_v", "total_rows"),
        *pointer_fields("out", "dout"),
        *stride_fields("out", "dout"),
        *pointer_fields("lse", "dlse"),
        *number_fields("lse_batch", "lse_head", "dlse_batch", "dlse_head"),
        *pointer_fields("starts_q", "lengths_q", "delta", "lse_log2"),
        *number_fields("prepared_batch", "prepared_head"),
        *pointer_fields("sink", "dsink", "cleared"),
        *number_fields("cleared_bytes"),
    )


class BackwardArgs(ctypes.Structure):
    """tw_attention_backward_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v", "total_rows", "total_keys"),
        *pointer_fields("q", "k", "v", "dout", "dq", "dk", "dv"),
        *stride_fields("q", "k", "v", "dout", "dq", "dk", "dv"),
        *pointer_fields("delta", "lse_log2"),
        *number_fields("prepared_batch", "prepared_head", "dkv_heads", "deterministic"),
        *pointer_fields("lse"),
        *number_fields("lse_batch", "lse_head"),
        *pointer_fields("starts_q", "starts_k", "lengths_q", "lengths_k"),
        *number_fields("window_left", "window_right", "bottom_right", "sink_keys"),
        *pointer_fields("mask", "bias"),
        ("mask_strides", _Four),
        ("bias_strides", _Four),
        *pointer_fields("dbias"),
        ("dbias_strides", _Four),
        *pointer_fields("alibi", "dalibi"),
        *number_fields("alibi_batch", "alibi_head", "dalibi_batch", "dalibi_head"),
        *pointer_fields("seed_at"),
        ("scale", ctypes.c_double),
        ("softcap", ctypes.c_double),
        ("dropout", ctypes.c_double),
        ("seed", _Halves),
        ("offset", _Halves),
        *number_fields("dq_cleared"),
    )


class Sums(ctypes.Structure):
    """tw_attention_backward_sums."""

    _fields_ = (
        *pointer_fields("source", "to"),
        *number_fields("parts"),
        *stride_fields("source", "to"),
    )


class ConvertArgs(ctypes.Structure):
    """tw_attention_backward_convert_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v", "total_rows", "total_keys"),
        ("dq", Sums),
        ("dk", Sums),
        ("dv", Sums),
        *pointer_fields("starts_q", "starts_k", "lengths_q", "lengths_k"),
        ("scale", ctypes.c_double),
    )


# The C names of what <tilewright/attention_backward_args.h> declares, for the test that compares them with the header.
ARGS: dict[str, type[ctypes.Structure]] = {
    "tw_attention_backward_dot_args": DotArgs,
    "tw_attention_backward_args": BackwardArgs,
    "tw_attention_backward_sums": Sums,
    "tw_attention_backward_convert_args": ConvertArgs,
}
CONSTANTS: dict[str, int] = {"TW_ATTENTION_BACKWARD_ROWS": PREPARED_ROWS}
