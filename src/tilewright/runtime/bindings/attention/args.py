"""The Python mirror of include/tilewright/attention_args.h; a test compares every size and offset with the compiler."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

_Four = ctypes.c_int64 * 4
_Halves = ctypes.c_double * 2


def number_fields(*names: str) -> tuple[tuple[str, type[ctypes.c_int64]], ...]:
    return tuple((name, ctypes.c_int64) for name in names)


def pointer_fields(*names: str) -> tuple[tuple[str, type[ctypes.c_void_p]], ...]:
    return tuple((name, ctypes.c_void_p) for name in names)


class Strides(ctypes.Structure):
    """tw_attention_strides."""

    _fields_ = number_fields("batch", "row", "head")


class Scales(ctypes.Structure):
    """tw_attention_scales."""

    _fields_ = (*pointer_fields("at"), *number_fields("batch", "head", "block", "block_rows"))


class Pages(ctypes.Structure):
    """tw_attention_pages."""

    _fields_ = (*pointer_fields("table", "indptr", "last"), *number_fields("stride", "size", "count"))


def stride_fields(*names: str) -> tuple[tuple[str, type[Strides]], ...]:
    return tuple((f"{name}_strides", Strides) for name in names)


class AttentionArgs(ctypes.Structure):
    """tw_attention_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v", "total_rows", "total_keys"),
        *pointer_fields("q", "k", "v", "o", "lse"),
        *stride_fields("q", "k", "v", "o"),
        *number_fields("lse_batch", "lse_head"),
        *pointer_fields("starts_q", "starts_k", "lengths_q", "lengths_k"),
        ("pages", Pages),
        *number_fields("window_left", "window_right", "bottom_right", "sink_keys"),
        *pointer_fields("sink", "mask", "bias"),
        ("mask_strides", _Four),
        ("bias_strides", _Four),
        *pointer_fields("alibi"),
        *number_fields("alibi_batch", "alibi_head"),
        ("q_scales", Scales),
        ("k_scales", Scales),
        ("v_scales", Scales),
        *pointer_fields("seed_at"),
        *number_fields("splits", "o_split", "lse_split"),
        ("scale", ctypes.c_double),
        ("softcap", ctypes.c_double),
        ("dropout", ctypes.c_double),
        ("seed", _Halves),
        ("offset", _Halves),
    )


# Numbers that stand one behind the other, as `struct` writes them, and where: sizes, strides, window.
_FIRST: Any = AttentionArgs
SIZES, SIZES_AT = struct.Struct("=9q"), _FIRST.batch.offset
STRIDES, STRIDES_AT = struct.Struct("=14q"), _FIRST.q_strides.offset  # to lse_head
WINDOW, WINDOW_AT = struct.Struct("=4q"), _FIRST.window_left.offset  # to sink_keys


class CombineArgs(ctypes.Structure):
    """tw_attention_combine_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "rows", "head_v", "splits", "total_rows"),
        *pointer_fields("parts", "part_lse", "o", "lse"),
        *stride_fields("part", "o"),
        *number_fields("part_split", "part_lse_split", "part_lse_batch", "part_lse_head", "lse_batch", "lse_head"),
        *pointer_fields("starts_q", "lengths_q"),
    )


class AppendArgs(ctypes.Structure):
    """tw_attention_append_args."""

    _fields_ = (
        *number_fields("batch", "heads_q", "heads_kv", "rows", "keys", "head_qk", "head_v"),
        *pointer_fields("k", "v", "q", "q_out", "cache_k", "cache_v"),
        *stride_fields("k", "v", "q", "q_out", "cache_k", "cache_v"),
        *pointer_fields("lengths", "lengths_new"),
        ("pages", Pages),
        *pointer_fields("cos", "sin"),
        *number_fields("rotary", "table_rows", "table_stride"),
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
