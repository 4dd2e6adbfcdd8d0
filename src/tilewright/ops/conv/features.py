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
PROBLEM_WORDS = {"variant": VARIANTS, "epilogue": EPILOGUES}
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


def problem_features(p: ConvProblem) -> Sequence[Any]:
    m, n, k = p.gemm
    pointwise = max(p.window) == max(p.stride) == 1 and max((*p.before, *p.after)) == 0
    channels, filters = p.group_channels, p.group_filters
    pixels_in, pixels_out, taps, flops = prod(p.size), prod(p.out), prod(p.window), p.flops
    return (
        p.variant, len(p.size), _log2(m), _log2(n), _log2(k), _log2(p.batch), _log2(p.groups),
        _log2(channels), _log2(filters), _log2(pixels_in), _log2(pixels_out),
        *map(_log2, _three(p.size, 1)), *_three(p.window, 1), *_three(p.stride, 1), *_three(p.dilation, 1),
        *_three(p.before, 0), pointwise, _log2(flops), _log2(flops / max(1, p.bytes)),
        DTYPES[p.dtype].bytes, DTYPES[p.dtype_out].bytes, _divides(channels), _divides(filters),
        p.channels_last, p.num_d, p.full_d, p.epilogue, p.deterministic,
        _log2(p.batch * p.channels * pixels_in), _log2(p.filters * channels * taps),
        _log2(p.batch * p.filters * pixels_out),
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
    field = kernels.get(name)
    return 1.0 if field is None else np.where(field > 0, field, 1.0)


def kernel_terms(kernels: Mapping[str, Array], units: int) -> Mapping[str, Any]:
    """What interactions need of the kernels alone."""
    shape = np.shape(next(iter(kernels.values()))) if kernels else (0,)
    tile_m, tile_n, tile_k, split, merged, register_m, register_n, results = (
        np.broadcast_to(_field(kernels, name), shape)
        for name in ("tile_m", "tile_n", "tile_k", "split_k", "merged", "warp_tile_m", "warp_tile_n", "results")
    )
    several = np.stack([results] * 3) if (results > 1).any() else np.empty((0, *shape))
    return {
        # What sizes are cut into; the order is that of `_sizes`.
        "parts": np.stack(
            [tile_m, tile_n, register_m, register_n, register_n, register_n, register_m, register_n, *several]
        ),
        "depth": tile_k * split,
        "split": split if (split > 1).any() else None,
        "merges": merged if (merged > 1).any() else None,
        "intensity": tile_m * tile_n / (tile_m + tile_n),
        "results": results if len(several) else None,
    }


def _sizes(p: ConvProblem, m: int, n: int, count: int) -> Array:
    """What is cut into parts, the first `count` of them: the last three are for kernels of several results at once."""
    out = p.out
    width = out[-1]
    extents = (m, n, m, n, p.group_filters, p.group_channels, width, width, *out, 1, 1)
    return np.array(extents[:count], np.float64).reshape(count, 1)


def interactions(p: ConvProblem, kernels: Mapping[str, Any], units: int) -> Array:
    """All of `INTERACTION` in one array; rows that are made alike are made at once, since calls cost more than they."""
    m, n, k = p.gemm
    parts, split, merged, depth = (kernels[name] for name in ("parts", "split", "merges", "depth"))
    out: Array = np.empty((len(INTERACTION), parts.shape[1]))
    sizes = _sizes(p, m, n, len(parts))
    counts = sizes / parts
    np.minimum(64.0, counts[:2], out=out[8:10])
    groups: Array | int = p.groups
    if merged is not None:  # a tile has the filters of several groups
        wide = n * np.minimum(merged, p.groups)
        counts[1] = wide / parts[1]
        groups = np.ceil(p.groups / merged)
    np.ceil(counts, out=counts)
    full = np.multiply(counts, parts)
    np.maximum(1.0, full, out=full)
    if merged is not None:
        wide = wide / full[1]
    np.divide(sizes, full, out=full)
    out[3:5], out[11:17] = full[:2], full[2:8]
    if merged is not None:
        out[4] = wide
    tiles = np.multiply(counts[0] * counts[1], groups, out=out[0])
    if split is not None:
        np.multiply(tiles, split, out=tiles)
    np.maximum(1.0, tiles, out=tiles)
    waves = np.divide(tiles, units, out=out[1])
    np.divide(tiles, np.ceil(waves) * units, out=out[2])
    steps = np.maximum(1.0, np.ceil(k / depth), out=out[6])
    np.divide(k, steps * depth, out=out[5])
    out[7], out[10] = kernels["intensity"], p.groups if merged is None else p.groups / merged
    # As kernels see the results that compute several of a row and column at once.
    out[17] = np.multiply.reduce(full[8 : 8 + len(p.size)]) if len(full) > 8 else 1.0
    np.divide(counts[2] * counts[3] * p.groups, units, out=out[18])  # tiles of registers, of all groups
    return out
