"""What a model of attention kernels sees beyond the kernel's own fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import FAMILIES, LOOKUPS, PAGES, SCALES
from tilewright.ops.attention_terms import BIASES, MASKS

PROBLEM = (
    "family", "log2_batch", "log2_heads_q", "log2_heads_kv", "log2_group", "log2_rows", "log2_keys", "head_qk",
    "head_v", "log2_pairs",
    "log2_flops", "log2_intensity", "seen", "mask", "bottom_right", "log2_window", "bias", "masked",
    "softcap", "dropout", "lse", "sink", "packed", "filled", "lengths_q", "lengths_k", "pages", "lookup",
    "log2_page_size", "scales", "splits", "bytes_q", "bytes_kv", "bytes_out", "heads_outer",
)  # fmt: skip
PROBLEM_WORDS = {
    "family": FAMILIES, "mask": MASKS, "bias": BIASES, "pages": PAGES, "lookup": LOOKUPS, "scales": SCALES,
}  # fmt: skip
INTERACTION = (
    "log2_tiles", "tiles_a_unit", "last_wave", "full_rows", "full_keys", "log2_key_steps", "packed_tiles_a_unit",
    "rows_over_tile", "keys_over_tile",
)  # fmt: skip

Array = np.ndarray[Any, Any]


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))


def problem_features(p: AttentionProblem) -> Sequence[Any]:
    all_pairs = p.batch * p.heads_q * p.seqlen_q * p.seqlen_k
    return (
        p.family, _log2(p.batch), _log2(p.heads_q), _log2(p.heads_kv),
        _log2(p.heads_q / max(1, p.heads_kv)), _log2(p.seqlen_q), _log2(p.seqlen_k), p.head_dim, p.head_dim_v,
        _log2(p.pairs),
        _log2(p.flops), _log2(p.flops / max(1, p.bytes)), p.pairs / max(1, all_pairs), p.mask,
        p.align == "bottom_right", _log2(p.window_left + 1) if p.window_left >= 0 else 32.0, p.bias,
        bool(p.mask_shape), p.softcap, p.dropout, p.return_lse, p.sink, p.varlen,
        p.total_q / max(1, p.batch * p.seqlen_q) if p.varlen else 1.0, p.seqlens_q, p.seqlens_k, p.pages,
        p.page_lookup, _log2(p.page_size), p.scales, p.num_splits, DTYPES[p.dtype_q].bytes,
        DTYPES[p.dtype_kv].bytes, DTYPES[p.dtype_out].bytes, p.k_strides[1] < p.k_strides[2],
    )  # fmt: skip


def _field(kernels: Mapping[str, Array], name: str) -> Array | float:
    """A field of the kernels; 1 where a kernel, or every one, has no such field."""
    field = kernels.get(name)
    return 1.0 if field is None else np.where(field > 0, field, 1.0)


def interactions(p: AttentionProblem, kernels: Mapping[str, Array], units: int) -> Sequence[Array]:
    """Tiles of rows and keys, by the fields `tile_m` and `tile_n` that schedules of tiles have."""
    shape = np.shape(next(iter(kernels.values()))) if kernels else (0,)
    tile_m, tile_n = (np.broadcast_to(_field(kernels, name), shape) for name in ("tile_m", "tile_n"))
    rows = p.total_q / max(1, p.batch) if p.varlen else p.seqlen_q
    group = p.heads_q / max(1, p.heads_kv)
    across, steps = np.maximum(1.0, np.ceil(rows / tile_m)), np.maximum(1.0, np.ceil(p.seqlen_k / tile_n))
    tiles = np.maximum(1.0, across * p.batch * p.heads_q * max(1, p.num_splits))
    together = np.maximum(1.0, np.ceil(rows * group / tile_m) * p.batch * p.heads_kv * max(1, p.num_splits))
    return (
        np.log2(tiles),
        tiles / units,
        tiles / (np.ceil(tiles / units) * units),
        rows / (across * tile_m),
        p.seqlen_k / (steps * tile_n),
        np.log2(steps),
        together / units,
        np.minimum(64.0, rows / tile_m),
        np.minimum(64.0, p.seqlen_k / tile_n),
    )
