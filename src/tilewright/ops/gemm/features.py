"""What a model of GEMM kernels sees beyond the kernel's own fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.fused import EPILOGUES
from tilewright.ops.gemm.problem import GemmProblem

PROBLEM = (
    "log2_m", "log2_n", "log2_k", "log2_batch", "log2_flops", "log2_intensity", "bytes_a", "bytes_b", "bytes_c",
    "a_by_rows", "b_by_rows", "divides_m", "divides_n", "divides_k", "num_d", "epilogue", "beta", "preshuffled",
)  # fmt: skip
INTERACTION = (
    "log2_tiles", "tiles_a_unit", "last_wave", "full_m", "full_n", "full_k", "log2_k_steps", "log2_tile_intensity",
    "m_over_tile", "n_over_tile",
)  # fmt: skip

Array = np.ndarray[Any, Any]


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))


def _divides(size: int) -> int:
    """The power of two that divides a size, up to 256, as its logarithm: what loads and tiles may be aligned to."""
    return min(8, (size & -size).bit_length() - 1) if size else 8


def problem_features(p: GemmProblem) -> Sequence[float]:
    return (
        _log2(p.m), _log2(p.n), _log2(p.k), _log2(p.batch), _log2(p.flops), _log2(p.flops / max(1, p.bytes)),
        DTYPES[p.dtype_a].bytes, DTYPES[p.dtype_b].bytes, DTYPES[p.dtype_c].bytes,
        p.layout[0] == "r", p.layout[1] == "r", _divides(p.m), _divides(p.n), _divides(p.k), p.num_d,
        EPILOGUES.index(p.epilogue), p.beta, p.preshuffled,
    )  # fmt: skip


def _tile(kernels: Mapping[str, Array], axis: str) -> Array:
    """What a block takes along an axis; 1 where a kernel has no blocks."""
    found = kernels[f"tile_{axis}"]
    return np.where(found > 0, found, 1.0)


def interactions(p: GemmProblem, kernels: Mapping[str, Array], units: int) -> Sequence[Array]:
    tile_m, tile_n, tile_k = (_tile(kernels, axis) for axis in "mnk")
    split = kernels["split_k"]
    split = np.where(split > 0, split, 1.0)
    across, down = np.ceil(p.m / tile_m), np.ceil(p.n / tile_n)
    tiles = np.maximum(1.0, across * down * p.batch * split)
    steps = np.maximum(1.0, np.ceil(p.k / (tile_k * split)))
    rounds = np.ceil(tiles / units)
    return (
        np.log2(tiles),
        tiles / units,
        tiles / (rounds * units),
        p.m / np.maximum(1.0, across * tile_m),
        p.n / np.maximum(1.0, down * tile_n),
        p.k / (steps * tile_k * split),
        np.log2(steps),
        np.log2(tile_m * tile_n / (tile_m + tile_n)),
        np.minimum(64.0, p.m / tile_m),
        np.minimum(64.0, p.n / tile_n),
    )
