"""The Python mirror of include/tilewright/attention_args.h; a test compares every size and offset with the compiler."""

from __future__ import annotations

import ctypes

_Four = ctypes.c_int64 * 4
_Halves = ctypes.c_double * 2


def _numbers(*names: str) -> tuple[tuple[str, type[ctypes.c_int64]], ...]:
    return tuple((name, ctypes.c_int64) for name in names)


def _pointers(*names: str) -> tuple[tuple[str, type[ctypes.c_void_p]], ...]:
    return tuple((name, ctypes.c_void_p) for name in names)


class Strides(ctypes.Structure):
    """tw_attention_strides."""

    _fields_ = _numbers("batch", "row", "head")


class Scales(ctypes.Structure):
    """tw_attention_scales."""

    _fields_ = (*_pointers("at"), *_numbers("batch", "head", "block", "block_rows"))


class Pages(ctypes.Structure):
    """tw_attention_pages."""

    _fields_ = (*_pointers("table", "indptr", "last"), *_numbers("stride", "size", "count"))


def _strides(*names: str) -> tuple[tuple[str, type[Strides]], ...]:
    return tuple((f"{name}_strides", Strides) for name in names)


class AttentionArgs(ctypes.Structure):
    """tw_attention_args."""

    _fields_ = (
        *_numbers("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v", "total_rows", "total_keys"),
        *_pointers("q", "k", "v", "o", "lse"),
        *_strides("q", "k", "v", "o"),
        *_numbers("lse_batch", "lse_head"),
        *_pointers("starts_q", "starts_k", "lengths_q", "lengths_k"),
        ("pages", Pages),
        *_numbers("window_left", "window_right", "bottom_right", "sink_keys"),
        *_pointers("sink", "mask", "bias"),
        ("mask_strides", _Four),
        ("bias_strides", _Four),
        *_pointers("alibi"),
        *_numbers("alibi_batch", "alibi_head"),
        ("q_scales", Scales),
        ("k_scales", Scales),
        ("v_scales", Scales),
        *_pointers("seed_at"),
        *_numbers("splits", "o_split", "lse_split"),
        ("scale", ctypes.c_double),
        ("softcap", ctypes.c_double),
        ("dropout", ctypes.c_double),
        ("seed", _Halves),
        ("offset", _Halves),
    )


class CombineArgs(ctypes.Structure):
    """tw_attention_combine_args."""

    _fields_ = (
        *_numbers("batch", "heads_q", "rows", "head_v", "splits", "total_rows"),
        *_pointers("parts", "part_lse", "o", "lse"),
        *_strides("part", "o"),
        *_numbers("part_split", "part_lse_split", "part_lse_batch", "part_lse_head", "lse_batch", "lse_head"),
        *_pointers("starts_q", "lengths_q"),
    )


class AppendArgs(ctypes.Structure):
    """tw_attention_append_args."""

    _fields_ = (
        *_numbers("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v"),
        *_pointers("k", "v", "q", "q_out", "cache_k", "cache_v"),
        *_strides("k", "v", "q", "q_out", "cache_k", "cache_v"),
        *_pointers("lengths", "lengths_new"),
        ("pages", Pages),
        *_pointers("cos", "sin"),
        *_numbers("rotary", "table_rows", "table_stride"),
        *((f"{name}_scales", Scales) for name in "kv"),
    )


# The C names of what <tilewright/attention_args.h> declares, for the test that compares them with the header.
ARGS: dict[str, type[ctypes.Structure]] = {
    "tw_attention_strides": Strides,
    "tw_attention_scales": Scales,
    "tw_attention_pages": Pages,
    "tw_attention_args": AttentionArgs,
    "tw_attention_combine_args": CombineArgs,
    "tw_attention_append_args": AppendArgs,
}
CONSTANTS: dict[str, int] = {}
