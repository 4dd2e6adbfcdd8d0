"""What a model of kernels of attention's gradients sees beyond the kernel's own fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import ACCUMULATES, FAMILIES
from tilewright.ops.attention_terms import BIASES, MASKS

PROBLEM = (
    "family", "log2_batch", "log2_heads_q", "log2_heads_kv", "log2_group", "log2_rows", "log2_keys", "head_qk",
    "head_v", "log2_pairs", "log2_flops", "log2_intensity", "seen", "mask", "bottom_right", "log2_window", "bias",
    "masked", "softcap", "dropout", "packed", "filled", "lengths_q", "lengths_k", "dlse", "dsink", "dbias", "dalibi",
    "deterministic", "sums", "bytes", "heads_outer",
)  # fmt: skip
PROBLEM_WORDS = {"family": FAMILIES, "mask": MASKS, "bias": BIASES, "sums": ACCUMULATES}
INTERACTION = ("log2_tiles", "tiles_a_unit", "last_wave", "full_rows", "full_keys", "log2_row_steps")

Array = np.ndarray[Any, Any]


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))


def problem_features(p: AttentionBackwardProblem) -> Sequence[Any]:
    all_pairs = p.batch * p.heads_q * p.seqlen_q * p.seqlen_k
    return (
        p.family or "grad", _log2(p.batch), _log2(p.heads_q), _log2(p.heads_kv),
        _log2(p.heads_q / max(1, p.heads_kv)), _log2(p.seqlen_q), _log2(p.seqlen_k), p.head_dim, p.head_dim_v,
        _log2(p.pairs), _log2(p.flops), _log2(p.flops / max(1, p.bytes)), p.pairs / max(1, all_pairs), p.mask,
        p.align == "bottom_right", _log2(p.window_left + 1) if p.window_left >= 0 else 32.0, p.bias,
        bool(p.mask_shape), p.softcap, p.dropout, p.varlen,
        p.total_q / max(1, p.batch * p.seqlen_q) if p.varlen else 1.0, p.seqlens_q, p.seqlens_k, p.dlse, p.dsink,
        p.dbias, p.dalibi, p.deterministic, p.accumulate or "none", DTYPES[p.dtype].bytes,
        p.k_strides[1] < p.k_strides[2],
    )  # fmt: skip


def _field(kernels: Mapping[str, Array], name: str) -> Array | float:
    """A field of the kernels; 1 where a kernel, or every one, has no such field."""
    field = kernels.get(name)
    return 1.0 if field is None else np.where(field > 0, field, 1.0)


def interactions(p: AttentionBackwardProblem, kernels: Mapping[str, Array], units: int) -> Sequence[Array]:
    """Tiles of rows and keys, by the fields `tile_m` and `tile_n` that schedules of tiles have: a block owns keys."""
    shape = np.shape(next(iter(kernels.values()))) if kernels else (0,)
    tile_m, tile_n = (np.broadcast_to(_field(kernels, name), shape) for name in ("tile_m", "tile_n"))
    rows = p.total_q / max(1, p.batch) if p.varlen else p.seqlen_q
    keys = p.total_k / max(1, p.batch) if p.varlen else p.seqlen_k
    steps, across = np.maximum(1.0, np.ceil(rows / tile_m)), np.maximum(1.0, np.ceil(keys / tile_n))
    tiles = np.maximum(1.0, across * p.batch * p.heads_kv)
    return (
        np.log2(tiles),
        tiles / units,
        tiles / (np.ceil(tiles / units) * units),
        rows / (steps * tile_m),
        keys / (across * tile_n),
        np.log2(steps),
    )
