"""Random operands: drawn from what is stated, whatever their number, and nowhere the same again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.runtime.random_values import BLOCK, random_values


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8_e4m3", "int8", "int32"])
@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1, 5 * BLOCK + 77])
def test_values_are_spread_as_stated(dtype: str, count: int) -> None:
    found = random_values(np.random.default_rng(3), count, dtype).astype(np.float64)
    assert found.shape == (count,)
    if count < BLOCK:
        return
    wide = {"int8": 127 / 3**0.5, "int32": 1000 / 3**0.5}.get(dtype, 1.0)
    assert abs(found.mean()) < 0.05 * wide
    assert found.std() == pytest.approx(wide, rel=0.05)
    again = random_values(np.random.default_rng(4), count, dtype).astype(np.float64)
    assert (found != again).mean() > 0.9, "another seed, other values"


def test_no_distance_repeats_them() -> None:
    """A kernel that reads a row too far, or a tile, reads something else."""
    found = random_values(np.random.default_rng(3), 8 * BLOCK, "fp32")
    for distance in (*range(1, 300), 1000, 4096, 65521, *(each * BLOCK for each in range(1, 8))):
        assert (found[distance:] == found[:-distance]).mean() < 0.01
