from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.dtypes import BY_NUMPY_NAME, DTYPES, dtype
from tilewright.errors import UnknownNameError


def numpy_type(name: str) -> np.dtype[np.generic]:
    numpy_name = DTYPES[name].numpy_name
    return np.dtype(getattr(ml_dtypes, numpy_name) if hasattr(ml_dtypes, numpy_name) else numpy_name)


@pytest.mark.parametrize("name", DTYPES)
def test_sizes_are_those_of_the_array_library(name: str) -> None:
    assert numpy_type(name).itemsize == DTYPES[name].bytes
    assert BY_NUMPY_NAME[numpy_type(name).name] == ("fp32" if name == "tf32" else name)


@pytest.mark.parametrize("name", [name for name, one in DTYPES.items() if one.kind == "float" and name != "tf32"])
def test_unit_roundoff_is_half_the_distance_from_one_to_the_next_number(name: str) -> None:
    finfo: Any = ml_dtypes.finfo
    assert DTYPES[name].unit_roundoff == float(finfo(numpy_type(name)).eps) / 2


@pytest.mark.parametrize("name", ["int8", "int32"])
def test_integers_are_exact(name: str) -> None:
    assert DTYPES[name].unit_roundoff == 0.0


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert dtype("bf16").bytes == 2
    with pytest.raises(UnknownNameError) as caught:
        dtype("bf61")
    assert caught.value.rule == "dtype-name"
    assert caught.value.value == "bf61"
    assert "did you mean 'bf16'" in caught.value.remedy
