"""Random numbers of an element type, as many as operands need: sweeps make them for every problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.runtime.numpy_types import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

# Fresh numbers cost more than a small kernel: these many are drawn, and more of them are these again, in runs that each
# begin at a place drawn anew, so that no distance in memory repeats them.
BLOCK = 1 << 16


def random_values(generator: np.random.Generator, count: int, dtype: str) -> Array:
    """Integers over their type's range (of int32 a thousand either way), floats normal: of order one, which keeps every
    output type in its range at the usual lengths of sums."""
    block = _fresh(generator, min(count, BLOCK), dtype)
    if count <= BLOCK:
        return block
    twice, out = np.concatenate([block, block]), np.empty(count, block.dtype)
    for first in range(0, count, BLOCK):
        part, start = out[first : first + BLOCK], int(generator.integers(BLOCK))
        part[...] = twice[start : start + len(part)]
    return out


def _fresh(generator: np.random.Generator, count: int, dtype: str) -> Array:
    if DTYPES[dtype].kind == "int":
        high = 127 if dtype == "int8" else 1000
        return generator.integers(-high, high, count, dtype=np.int32, endpoint=True).astype(numpy_dtype(dtype))
    values = generator.standard_normal(count, dtype=np.float32)
    return values if dtype == "fp32" else values.astype(numpy_dtype(dtype))
