"""Every mistake in a call has one clear error: its rule, what is wrong, what would work."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import TilewrightError

pytestmark = pytest.mark.usefixtures("floor", "needs_compiler")

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal(one, np.float32) for one in ((2, 5, 4, 16), (2, 7, 2, 16), (2, 7, 2, 24)))
FP8 = [one.astype(ml_dtypes.float8_e4m3fn) for one in (Q, K, V)]
OUT = np.empty((2, 5, 4, 24), np.float32)
READ_ONLY = np.empty((2, 5, 4, 24), np.float32)
READ_ONLY.flags.writeable = False
POOL_K, POOL_V = RNG.standard_normal((6, 4, 2, 16), np.float32), RNG.standard_normal((6, 4, 2, 24), np.float32)
TABLE, LENGTHS = np.array([[0, 1], [2, 3]], np.int32), np.array([7, 5], np.int32)
INDICES = (np.array([0, 2, 3], np.int32), np.array([0, 1, 2], np.int32), np.array([4, 2], np.int32))
STARTS = np.array([0, 3, 5], np.int32)
COS = RNG.standard_normal((16, 4), np.float32)
NEW = {
    "cache_k": POOL_K.copy(),
    "cache_v": POOL_V.copy(),
    "k": K[:, :3],
    "v": V[:, :3],
    "cache_seqlens": np.array([0, 3], np.int32),
}


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def attend(**more: Any) -> Any:
    return tw.attention(*[more.pop(name, usual) for name, usual in (("q", Q), ("k", K), ("v", V))], **more)


def paged(**more: Any) -> Any:
    usual: dict[str, Any] = {"k": POOL_K, "v": POOL_V, "block_table": TABLE, "seqlens_k": LENGTHS}
    return attend(**{**usual, **more})


def packed(**more: Any) -> Any:
    usual: dict[str, Any] = {"q": Q[0], "k": K[0], "v": V[0], "cu_seqlens_q": STARTS, "cu_seqlens_k": ints(0, 3, 7)}
    return attend(**{**usual, **more})


def append(**more: Any) -> Any:
    room = {"cache_k": np.zeros((2, 9, 2, 16), np.float32), "cache_v": np.zeros((2, 9, 2, 24), np.float32)}
    usual: dict[str, Any] = {**room, "k": K, "v": V, "cache_seqlens": ints(0, 2)}
    given = {**usual, **more}
    arrays = [given.pop(name) for name in ("cache_k", "cache_v", "k", "v")]
    return tw.append_kv(*arrays, **given)


WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    # arguments that nothing reads
    (attend, {"seed": 7}, "seed", "dropout_p is 0: nothing reads it"),
    (attend, {"seed": "nonsense", "dropout_p": 0}, "seed", "leave seed out"),
    (attend, {"sink_tokens": 10**30}, "sink", "no window bounds keys on the left"),
    (attend, {"sink_tokens": 2, "causal": True}, "sink", "no window bounds keys on the left"),
    (attend, {"sink_tokens": 2, "window": (None, 0)}, "sink", "leave sink_tokens out"),
    # what is no array, or none of these
    (attend, {"q": None}, "array-type", "q is None"),
    (attend, {"k": [[1.0]]}, "array-type", "k is a list"),
    (attend, {"seqlens_k": [7, 5]}, "array-type", "np.asarray(seqlens_k, dtype=np.int32)"),
    (attend, {"mask": True}, "array-type", "np.asarray(mask, dtype=bool)"),
    (attend, {"q": Q[0]}, "array-rank", "q has 3 dimension"),
    (packed, {"q": Q}, "array-rank", "rows are packed"),
    # element types
    (attend, {"q": Q.astype(np.float64)}, "array-dtype", "float64"),
    (attend, {"q": Q.astype(np.int8), "k": K.astype(np.int8), "v": V.astype(np.int8)}, "array-dtype", "int8"),
    (attend, {"q": Q.astype(np.int32)}, "array-dtype", "convert it, for example q.astype(np.float32)"),
    (attend, {"v": V.astype(np.float16)}, "dtype-mix", "k holds fp32 and v fp16"),
    (attend, {"k": K.astype(np.float16), "v": V.astype(np.float16)}, "dtype-mix", "use fp32"),
    (attend, {"layout": 4}, "layout-name", "the layout is an int"),
    (attend, {"out_dtype": "int8"}, "dtype-output", "int8"),
    (attend, {"out_dtype": "fp31"}, "dtype-name", "fp31"),
    (attend, {"out": OUT, "out_dtype": "fp16"}, "out-dtype", "out holds fp32"),
    # shapes that disagree
    (attend, {"k": K[:, :, :, :8]}, "head-size", "16 elements and those of k 8"),
    (attend, {"v": V[:, :6]}, "shape-values", "differ in sequences or keys"),
    (attend, {"v": V[:, :, :1]}, "shape-values", "2 heads and v 1"),
    (attend, {"k": K[:1], "v": V[:1]}, "shape-batch", "1 sequences and q 2"),
    (attend, {"q": Q[:, :, :3]}, "heads-divide", "3 query heads"),
    (attend, {"q": np.zeros((1, 1, 1, 600), np.float32), "k": np.zeros((1, 1, 1, 600), np.float32),
              "v": np.zeros((1, 1, 1, 8), np.float32)}, "head-size", "at most 576"),
    (attend, {"q": Q[..., :0], "k": K[..., :0]}, "size-positive", "q has 0 elements"),
    (attend, {"v": V[..., :0]}, "size-positive", "v has 0 elements in a head"),
    (attend, {"k": K[:, :, :0], "v": V[:, :, :0]}, "size-positive", "k has 0 heads"),
    (attend, {"out": np.empty((2, 5, 4, 16), np.float32)}, "shape-out", "(2, 5, 4, 24)"),
    (attend, {"out": READ_ONLY}, "out-read-only", "read-only"),
    (attend, {"out": OUT[..., ::-1][..., ::-1][:, ::-1], "q": np.zeros((2, 5, 4, 16), np.float32)[..., ::2]},
     "array-strides", "stride of 2"),
    # layouts
    (attend, {"layout": "sbhd"}, "layout-name", "bshd"),
    (attend, {"layout": 3}, "layout-name", "int"),
    (attend, {"kv_layout": "linear"}, "layout-name", "bhsd"),
    (paged, {"kv_layout": "diagonal"}, "layout-name", "diagonal"),
    # what is seen
    (attend, {"causal": "left"}, "causal", "bottom_right"),
    (attend, {"causal": 1.5}, "causal", "1.5"),
    (attend, {"window": 3}, "window", "(left, right)"),
    (attend, {"window": (1.5, 0)}, "attention-number", "window"),
    (attend, {"window": (-3, 0)}, "window", "-1 for no bound"),
    (attend, {"window": (1, 0, "middle")}, "window", "top_left"),
    (attend, {"window": (1, 0, np.array([1, 2]))}, "window", "top_left"),
    (attend, {"window": (1, 0, "top_left"), "causal": "bottom_right"}, "window", "say the same"),
    (attend, {"window": (1, 0, "bottom_right"), "causal": "top_left"}, "window", "say the same"),
    (attend, {"mask": np.ones((3, 5, 7), bool)}, "mask-shape", "does not broadcast"),
    (attend, {"mask": np.ones((1, 2, 4, 5, 7), bool)}, "mask-shape", "does not broadcast"),
    (attend, {"mask": np.ones((5, 7), np.float32)}, "mask-dtype", "bias="),
    (attend, {"bias": np.ones((5, 6), np.float32)}, "bias-shape", "does not broadcast"),
    # by the name that was given
    (attend, {"attn_mask": np.ones((3, 5, 7), bool)}, "mask-shape", "attn_mask of shape (3, 5, 7) does not"),
    (attend, {"attn_mask": np.ones((5, 6), np.float32)}, "bias-shape", "attn_mask of shape (5, 6) does not"),
    (attend, {"attn_mask": np.ones((5, 7))}, "array-dtype", "attn_mask.astype(np.float32)"),
    (attend, {"attn_mask": np.ones((5, 7), bool), "bias": np.ones((5, 6), np.float32)}, "bias-shape", "bias of shape"),
    (attend, {"bias": np.ones((5, 7), bool)}, "bias-dtype", "mask="),
    (attend, {"bias": np.ones((5, 7), np.float16)}, "dtype-bias", "bias of fp16"),
    (attend, {"bias": np.ones((5, 7), np.float16)}, "dtype-bias", "; use fp32"),
    (attend, {"bias": np.ones((5, 7), np.float32), "alibi_slopes": np.ones(4, np.float32)}, "bias-alibi", "both"),
    (attend, {"alibi_slopes": np.ones(3, np.float32)}, "alibi-shape", "(4,)"),
    (attend, {"alibi_slopes": np.ones(4, np.float16)}, "alibi-shape", "fp16"),
    (attend, {"sink": np.ones(3, np.float32)}, "sink-shape", "one logit a query head"),
    (attend, {"sink": (1, 2, 3)}, "sink", "give logits"),
    (attend, {"sink_tokens": -2, "window": (1, 1)}, "size-negative", "sink_tokens is -2"),
    # numbers
    (attend, {"softcap": 0.0}, "softcap", "over 0"),
    (attend, {"softcap": -1}, "softcap", "over 0"),
    (attend, {"softcap": np.float32(-1)}, "softcap", "over 0"),
    (attend, {"softcap": 1e39}, "softcap", "below 1e38"),
    (attend, {"softcap": 1e-39}, "softcap", "from 1e-38"),
    (attend, {"scale": 1e39}, "scale", "between -1e38 and 1e38"),
    (attend, {"scale": float("nan")}, "scale", "scale is nan"),
    (attend, {"scale": -np.inf}, "scale", "scale is -inf"),
    (attend, {"softcap": "5"}, "scalar", "softcap"),
    (attend, {"scale": "half"}, "scalar", "scale"),
    (attend, {"dropout_p": 1.0, "seed": 1}, "dropout_p", "less than 1"),
    (attend, {"dropout_p": -0.1, "seed": 1}, "dropout_p", "0 or more"),
    (attend, {"dropout_p": np.float32(1.5), "seed": 1}, "dropout_p", "less than 1"),
    (attend, {"dropout_p": np.array([0.1, 0.2]), "seed": 1}, "scalar", "dropout_p"),
    (attend, {"dropout_p": 0.5}, "seed", "no seed"),
    (attend, {"dropout_p": 0.5, "seed": 1 << 70}, "seed", "64 bits"),
    (attend, {"dropout_p": 0.5, "seed": "one"}, "attention-number", "seed"),
    (attend, {"dropout_p": 0.5, "seed": np.zeros(3, np.int64)}, "seed", "two of int64"),
    (attend, {"num_splits": 0}, "attention-number", "1 or more"),
    (attend, {"num_splits": 129}, "splits", "at most 128"),
    (attend, {"num_splits": 2.0}, "attention-number", "splits"),
    (attend, {"causal": True, "window": (3, -7)}, "window", "window_right is -7"),
    (attend, {"causal": 1}, "causal", "True, False"),
    (attend, {"causal": np.array([True, False])}, "causal", "True, False"),
    (attend, {"return_lse": "no"}, "attention-switch", "return_lse"),
    (attend, {"return_lse": 1}, "attention-switch", "return_lse=True"),
    (attend, {"out": OUT.astype(">f4")}, "array-byte-order", "give an out that kernels can write"),
    # lengths and starts
    (attend, {"seqlens_k": {}}, "array-type", "dtype=np.int32"),
    (attend, {"seqlens_k": np.array([7, 5])}, "table-dtype", "int32"),
    (attend, {"seqlens_k": np.array([7, 5], np.uint32)}, "array-dtype", "; give seqlens_k as int32"),
    (attend, {"dropout_p": 0.5, "seed": np.zeros(2, np.uint64)}, "array-dtype", "; give seed as int64"),
    (paged, {"block_table": TABLE.astype(np.int16)}, "array-dtype", "; give block_table as int32"),
    (attend, {"seqlens_k": ints(7)}, "table-shape", "(2,)"),
    (attend, {"seqlens_k": ints(8, 1)}, "operand-values", "seqlens_k[0] = 8"),
    (attend, {"seqlens_q": ints(-1, 1)}, "operand-values", "seqlens_q[0] = -1"),
    (attend, {"seqlens_k": ints(8, 1), "num_splits": 2}, "operand-values", "out of range for attention forward_"),
    (attend, {"max_seqlen_q": 5}, "longest", "give cu_seqlens_q"),
    (attend, {"max_seqlen_k": 7}, "longest", "give cu_seqlens_k, or pages"),
    (attend, {"cu_seqlens_k": ints(0, 3, 7)}, "starts-both", "cu_seqlens_q"),
    (packed, {"cu_seqlens_k": None}, "starts-both", "cu_seqlens_k"),
    (packed, {"cu_seqlens_q": ints(0, 4, 3)}, "operand-values", "never decrease"),
    (packed, {"cu_seqlens_q": ints(0, 3, 6)}, "operand-values", "cu_seqlens_q[2] = 6"),
    (packed, {"cu_seqlens_q": ints(-1, 3, 5)}, "operand-values", "cu_seqlens_q"),
    (packed, {"cu_seqlens_k": ints(0, 3, 9)}, "operand-values", "cu_seqlens_k"),
    (packed, {"max_seqlen_q": 2}, "operand-values", "max_seqlen_q"),
    (packed, {"k": K[0, :0], "v": V[0, :0], "max_seqlen_k": 4}, "operand-values", "cu_seqlens_k"),
    (packed, {"cu_seqlens_k": ints(0, 7)}, "table-shape", "cu_seqlens_k"),
    # pages
    (paged, {"block_table": TABLE.astype(np.int64)}, "table-dtype", "block_table"),
    (paged, {"block_table": TABLE[:1]}, "table-shape", "2 sequences"),
    (paged, {"block_table": TABLE[0]}, "table-shape", "block_table"),
    (paged, {"block_table": ints(0, 1, 2, 6).reshape(2, 2)}, "operand-values", "block_table[1, 1] = 6"),
    (paged, {"block_table": ints(0, -1, 2, 3).reshape(2, 2)}, "operand-values", "block_table"),
    (paged, {"seqlens_k": ints(9, 1)}, "operand-values", "seqlens_k"),
    (paged, {"seqlens_k": None}, "page-lengths", "how many keys"),
    (paged, {"page_size": 8}, "page-size", "4 slots"),
    (paged, {"block_table": {}}, "array-type", "dtype=np.int32"),
    (attend, {"kv_layout": "linear"}, "layout-name", "there is no block_table; give block_table, or use bshd or bhsd"),
    (append, {"kv_layout": "Heads_First"}, "layout-name", "there is no block_table"),
    (attend, {"page_size": 4}, "page-size", "no block_table"),
    (packed, {"page_size": 4}, "page-size", "leave page_size out"),
    (paged, {"cu_seqlens_k": ints(0, 3, 7)}, "starts-both", "cu_seqlens_k"),
    (paged, {"q": Q[0], "cu_seqlens_q": STARTS, "cu_seqlens_k": ints(0, 3, 7)}, "page-starts",
     "leave cu_seqlens_k out"),
    (paged, {"k": POOL_K[:, :, :, :8]}, "head-size", "8"),
    (paged, {"v": POOL_V[:5]}, "shape-values", "differ"),
    (paged, {"kv_layout": "vectorised"}, "array-rank", "no vectorised page"),
    (paged, {"block_table": INDICES}, "page-lengths", "last page"),
    (paged, {"block_table": INDICES[:2]}, "page-lookup", "(indptr, indices, last)"),
    (paged, {"block_table": (None, *INDICES[1:]), "seqlens_k": None}, "page-lookup", "indptr"),
    (paged, {"block_table": (ints(0, 2, 4), *INDICES[1:]), "seqlens_k": None}, "operand-values", "page_indptr"),
    (paged, {"block_table": (*INDICES[:2], ints(5, 1)), "seqlens_k": None}, "operand-values", "page_last"),
    (paged, {"k": np.zeros((2, 1025, 2, 16), np.float32), "v": np.zeros((2, 1025, 2, 24), np.float32)}, "page-size",
     "1 to 1024"),
    (paged, {"k": POOL_K[:0], "v": POOL_V[:0]}, "operand-values", "seqlens_k"),
    (paged, {"k": POOL_K[:0], "v": POOL_V[:0], "block_table": INDICES, "seqlens_k": None}, "operand-values", "page_"),
    (paged, {"k": POOL_K[:, :0], "v": POOL_V[:, :0], "block_table": INDICES, "seqlens_k": None, "max_seqlen_k": 7},
     "page-size", "0 slots"),
    # scales
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "kv_scales": np.ones(2, np.float32)}, "scales-both", "(k_scale"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "kv_scales": (np.ones(3, np.float32), np.ones(2, np.float32))},
     "scales-shape", "shape (3,)"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "kv_scales": (np.ones(2, np.float32), None)}, "scales-both",
     "both"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 2), np.float32)}, "scales-shape",
     "scale_block"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 2), np.float32), "scale_block": 2},
     "scales-shape", "give 3 blocks"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 0), np.float32), "scale_block": 2},
     "scales-shape", "(2, 4, 0)"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 2), np.float32), "scale_block": 1 << 64},
     "size-huge", "scale_block"),
    (attend, {"q_scale": np.ones(1, np.float32)}, "scales-dtype", "only fp8"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 1), np.float32), "scale_block": 2},
     "scales-shape", "give 3 blocks"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((1, 1, 1), np.float32), "scale_block": 4},
     "scales-shape", "give 2 blocks"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones(4, np.float32), "scale_block": 8},
     "scale-block", "no scales by block"),
    (attend, {"scale_block": 8}, "scale-block", "no scales by block"),
    (packed, {"q": FP8[0][0], "k": FP8[1][0], "v": FP8[2][0], "q_scale": np.ones((2, 4, 2), np.float32),
              "scale_block": 2}, "scales-shape", "give 3 blocks, or max_seqlen_q where every sequence is shorter"),
    (packed, {"q": FP8[0][0], "k": FP8[1][0], "v": FP8[2][0], "scale_block": 2,
              "kv_scales": (np.ones((2, 2, 2), np.float32), np.ones((2, 2, 2), np.float32))}, "scales-shape",
     "give 4 blocks, or max_seqlen_k where"),
    (attend, {"q": FP8[0], "k": FP8[1], "v": FP8[2], "q_scale": np.ones((2, 4, 3, 1), np.float32), "scale_block": 2},
     "scales-shape", "blocks) with scale_block"),
    # append
    (append, {"cache_seqlens": ints(3, 0)}, "operand-values", "cache_seqlens"),
    (append, {"cache_seqlens": ints(0, -1)}, "operand-values", "cache_seqlens"),
    (append, {"cache_seqlens": None}, "array-type", "cache_seqlens is None"),
    (append, {"seqlens_new": ints(8, 1)}, "operand-values", "seqlens_new"),
    (append, {"k": K.astype(np.float16), "v": V.astype(np.float16)}, "dtype-mix", "fp16"),
    (append, {"k": FP8[1], "v": FP8[2]}, "dtype-mix", "use a cache of fp8_e4m3"),
    (append, {"cache_v": np.zeros((2, 9, 2, 24), np.float16)}, "dtype-mix", "cache_v holds fp16, and cache_k fp32"),
    (append, {"kv_scales": (np.ones(2, np.float32), np.ones(2, np.float32))}, "scales-dtype", "unscaled"),
    (append, {"kv_scales": (True, True)}, "array-type", "k_scale is a bool"),
    (append, {"kv_scales": np.ones(2, np.float32)}, "scales-both", "(k_scale"),
    (append, {"scale_block": 4}, "scale-block", "leave scale_block out"),
    (append, {"k": K[:1], "v": V[:1], "cache_seqlens": ints(0)}, "shape-batch", "2 sequences"),
    (append, {"k": K[..., :8]}, "shape-cache", "2 heads of 16"),
    (append, {"v": V[:, :3]}, "shape-values", "differ"),
    (append, {"rotary": (COS, COS)}, "rotary", "'half'"),
    (append, {"rotary": (COS, COS, "spiral")}, "rotary", "'half'"),
    (append, {"rotary": (COS, COS, np.array(["half", "half"]))}, "rotary", "'half'"),
    (append, {"q_out": Q}, "shape-queries", "leave q_out out"),
    (append, {"rotary": (COS, COS[:, :3], "half")}, "rotary-tables", "two alike"),
    (append, {"rotary": (COS[:, :2], COS[:, :2].copy(), "half")}, "rotary-tables", "the row stride of cos is 4"),
    (append, {"rotary": (COS[:5], COS[:5], "half")}, "rotary-tables", "7 new rows, and cos and sin 5"),
    (append, {"rotary": (COS[:8], COS[:8], "half")}, "operand-values", "cache_seqlens"),
    (append, {"cache_k": np.zeros((2, 6, 2, 16), np.float32), "cache_v": np.zeros((2, 6, 2, 24), np.float32)},
     "rows-fit", "7 new rows, and the cache has room for 6"),
    (append, {"rotary": (np.ones((16, 9), np.float32), np.ones((16, 9), np.float32), "half")}, "rotary-size", "18"),
    (append, {"rotary": (COS[:, :0], COS[:, :0], "half")}, "rotary-tables", "no pair is rotated"),
    (append, {"cache_k": POOL_K[:0], "cache_v": POOL_V[:0], "block_table": TABLE}, "rows-fit", "room for 0"),
    (append, {"cache_v": np.zeros((2, 9, 2, 0), np.float32), "v": V[..., :0]}, "size-positive", "v has 0 elements"),
    (append, {"cache_seqlens": None}, "array-type", "np.int32"),
    (append, {"q": Q}, "shape-queries", "a query for each new key"),
    (append, {"block_table": INDICES}, "page-lookup", "block table"),
    (append, {**NEW, "block_table": ints(0, 1, 2, 0).reshape(2, 2)}, "operand-values", "no two in one slot"),
    (append, {**NEW, "block_table": ints(0, 1, 3, 3).reshape(2, 2), "cache_seqlens": ints(0, 0), "k": K[:, :5],
              "v": V[:, :5]}, "operand-values", "no two in one slot"),
    (append, {"cache_k": np.lib.stride_tricks.as_strided(np.zeros((9, 2, 16), np.float32), (2, 9, 2, 16),
                                                         (0, 128, 64, 4))}, "out-overlaps-itself", "own"),
    (append, {"cache_k": K.reshape(7, 2, 2, 16).copy(), "cache_v": V.reshape(7, 2, 2, 24).copy(),
              "block_table": TABLE,
              "k": K[:, :3], "v": V[:, :3]}, "operand-values", "cache_seqlens"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "given", "rule", "words"), WRONG, ids=[f"{index}-{one[2]}" for index, one in enumerate(WRONG)]
)
def test_a_mistake_has_one_clear_error(call: Any, given: dict[str, Any], rule: str, words: str) -> None:
    OUT[...] = 7.0
    with pytest.raises(TilewrightError) as caught:
        call(**given)
    error = caught.value
    assert error.rule == rule, error
    assert words in f"{error.message}; {error.remedy}", error
    assert error.remedy
    assert (OUT == 7.0).all(), "nothing is written"


def test_the_usual_calls_are_right() -> None:
    """What every example above changes one thing of."""
    for call in (attend, paged, packed, append):
        call()
    paged(block_table=INDICES, seqlens_k=None)
    append(**NEW, block_table=ints(0, 1, 0, 3).reshape(2, 2))  # slots of one page, but apart


def test_switches_are_truth_values_of_any_library() -> None:
    np.testing.assert_array_equal(attend(causal=np.True_), attend(causal=True))
    np.testing.assert_array_equal(attend(causal=np.array(False)), attend())
    assert isinstance(attend(return_lse=np.True_), tuple)
    assert not isinstance(attend(return_lse=np.False_), tuple)


def test_the_least_and_largest_numbers_that_are_taken() -> None:
    """A score of 0 stays 0 under any cap, and any scale leaves it so."""
    q = Q.copy()
    q[:, 1] = 0.0
    mean = V.mean(1).repeat(2, 1)
    for numbers in ({"softcap": 1e-38}, {"softcap": 9.9e37}, {"scale": 9.9e37}, {"scale": -1e38}, {"scale": 1e-300}):
        np.testing.assert_allclose(attend(q=q, **numbers)[:, 1], mean, atol=1e-6)
    np.testing.assert_allclose(attend(q=q, softcap=1e-38), np.broadcast_to(mean[:, None], OUT.shape), atol=1e-6)


def test_values_that_are_not_finite_stay_where_they_are_seen() -> None:
    """A NaN among keys is NaN in the rows that see it, and in no other; so is an infinite value."""
    k, v = K.copy(), V.copy()
    k[0, 4, 0, 3] = np.nan
    found = attend(k=k, causal=True)
    assert np.isnan(found[0, 4:, :2]).all()
    assert np.isfinite(found[0, :4]).all()
    assert np.isfinite(found[0, :, 2:]).all()
    assert np.isfinite(found[1]).all()
    v[1, 2, 1, 5] = np.inf
    found = attend(v=v, causal=True)
    assert np.isposinf(found[1, 2:, 2:, 5]).all()
    assert np.isfinite(found[1, :2]).all()
    assert np.isfinite(found[1, :, :2]).all()
    hidden = np.ones((5, 7), bool)
    hidden[:, 4] = False
    assert np.isfinite(attend(k=k, mask=hidden)).all(), "what a mask hides is not looked at"
