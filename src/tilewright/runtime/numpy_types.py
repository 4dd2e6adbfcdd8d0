"""Our element types as NumPy's; the ones NumPy lacks come from ml_dtypes, imported when one is met."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES


@lru_cache(maxsize=32)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of one of our element types."""
    spelled = DTYPES[name].numpy_name
    if hasattr(np, spelled):
        return np.dtype(spelled)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, spelled))
    return dtype
