"""What a model of convolution kernels sees beyond the kernel's own fields.

The implicit GEMM is that of the direction: backward_weight sums over pixels, backward_data over filters and window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import VARIANTS, ConvSignature
from tilewright.ops.fused import EPILOGUES

PROBLEM = (
    "variant", "spatial", "log2_m", "log2_n", "log2_k", "log2_batch", "log2_groups", "log2_group_channels",
    "log2_group_filters", "log2_pixels_in", "log2_pixels_out", "log2_width", "log2_height", "log2_depth", "window_w",
    "window_h", "window_d", "stride_w", "stride_h", "stride_d", "dilation_w", "dilation_h", "dilation_d", "padding_w",
    "padding_h", "padding_d", "pointwise", "log2_flops", "log2_intensity", "bytes_in", "bytes_out", "divides_channels",
    "divides_filters", "channels_last", "num_d", "full_d", "epilogue", "deterministic", "log2_input", "log2_weights",
    "log2_output",
)  # fmt: skip
# As they are, without logarithms: trees ask which side of a threshold a number is on, whatever its scale.
INTERACTION = (
    "tiles", "tiles_a_unit", "last_wave", "full_m", "full_n", "full_k", "k_steps", "tile_intensity", "m_over_tile",
    "n_over_tile", "groups_over_merged", "full_register_m", "full_register_n", "full_filters", "full_channels",
    "full_row_m", "full_row_n", "full_results", "register_tiles_a_unit",
)  # fmt: skip

# Epilogues that compute nothing to speak of beside a sum of products.
_CHEAP = ("PassThrough", "MultiDAdd", "MultiDMultiply", "Relu")

Array = np.ndarray[Any, Any]


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))


def _divides(size: int) -> int:
    """The power of two that divides a size, up to 256, as its logarithm: what loads and tiles may be aligned to."""
    return min(8, (size & -size).bit_length() - 1) if size else 8


def _three(sizes: Sequence[int], missing: int) -> tuple[int, int, int]:
    """Width, height, depth."""
    width, height, depth = (*reversed(sizes), *(missing,) * (3 - len(sizes)))
    return width, height, depth


def problem_features(p: ConvProblem) -> Sequence[float]:
    m, n, k = p.gemm
    pointwise = max(p.window) == max(p.stride) == 1 and max((*p.before, *p.after)) == 0
    return (
        VARIANTS.index(p.variant), len(p.size), _log2(m), _log2(n), _log2(k), _log2(p.batch), _log2(p.groups),
        _log2(p.group_channels), _log2(p.group_filters), _log2(prod(p.size)), _log2(prod(p.out)),
        *map(_log2, _three(p.size, 1)), *_three(p.window, 1), *_three(p.stride, 1), *_three(p.dilation, 1),
        *_three(p.before, 0), pointwise, _log2(p.flops), _log2(p.flops / max(1, p.bytes)),
        DTYPES[p.dtype].bytes, DTYPES[p.dtype_out].bytes, _divides(p.group_channels), _divides(p.group_filters),
        p.channels_last, p.num_d, p.full_d, EPILOGUES.index(p.epilogue), p.deterministic,
        _log2(p.batch * p.channels * prod(p.size)), _log2(p.filters * p.group_channels * prod(p.window)),
        _log2(p.batch * p.filters * prod(p.out)),
    )  # fmt: skip


def signature_words(signature: ConvSignature) -> tuple[str, ...]:
    """What of a signature a model must have seen; the same in another combination is nothing new to it."""
    s = signature
    return (
        s.variant, f"{s.spatial} dimensions", f"{s.dtype} into {s.dtype_out}", f"{s.num_d} D tensors",
        "no activation" if s.epilogue in _CHEAP else "an activation",
    )  # fmt: skip


def _field(kernels: Mapping[str, Array], name: str) -> Array | float:
    """A field of the kernels; 1 where a kernel, or every one, has no such field."""
    found = kernels.get(name)
    return 1.0 if found is None else np.where(found > 0, found, 1.0)


def _full(size: float, part: Array) -> Array:
    """How full parts of a size are, the last one counted whole."""
    found: Array = size / np.maximum(1.0, np.ceil(size / part) * part)
    return found


def interactions(p: ConvProblem, kernels: Mapping[str, Array], units: int) -> Sequence[Array]:
    m, n, k = p.gemm
    shape = np.shape(next(iter(kernels.values()))) if kernels else (0,)
    tile_m, tile_n, tile_k, split, merged, register_m, register_n, results = (
        np.broadcast_to(_field(kernels, name), shape)
        for name in ("tile_m", "tile_n", "tile_k", "split_k", "merged", "warp_tile_m", "warp_tile_n", "results")
    )
    groups = np.ceil(p.groups / merged)
    across, down = np.ceil(m / tile_m), np.ceil(n * np.minimum(merged, p.groups) / tile_n)
    tiles = np.maximum(1.0, across * down * groups * split)
    steps = np.maximum(1.0, np.ceil(k / (tile_k * split)))
    small = np.ceil(m / register_m) * np.ceil(n / register_n)  # tiles of registers, of a group
    width = p.out[-1]
    cells = np.ones(shape)
    for size in p.out:  # as kernels see them that compute several results of a row and column at once
        cells = cells * _full(size, results)
    return (
        tiles,
        tiles / units,
        tiles / (np.ceil(tiles / units) * units),
        m / np.maximum(1.0, across * tile_m),
        n * np.minimum(merged, p.groups) / np.maximum(1.0, down * tile_n),
        k / (steps * tile_k * split),
        steps,
        tile_m * tile_n / (tile_m + tile_n),
        np.minimum(64.0, m / tile_m),
        np.minimum(64.0, n / tile_n),
        p.groups / merged,
        _full(m, register_m),
        _full(n, register_n),
        _full(p.group_filters, register_n),
        _full(p.group_channels, register_n),
        _full(width, register_m),
        _full(width, register_n),
        cells,
        p.groups * small / units,
    )
