"""Axes of `collect`: values of the wrong kind are one clear error, whatever the op would have made of them."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.codegen import collect
from tilewright.errors import RequestError


@pytest.mark.parametrize(
    ("axes", "remedy"),
    [
        ({"spatial": ("2",)}, "spatial=(2,)"),
        ({"spatial": "2"}, "spatial=(2,)"),
        ({"num_d": (True,)}, "whole numbers"),
        ({"datatypes": (16,)}, "datatypes=('16',)"),
    ],
)
def test_a_value_of_another_kind(axes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(RequestError) as caught:
        collect("conv", "gfx950", pool="default", axes=axes)
    assert caught.value.rule == "axis-value"
    assert remedy in caught.value.remedy


def test_a_pair_where_names_are_meant_is_told_what_names_look_like() -> None:
    with pytest.raises(RequestError) as caught:
        collect("attention", "gfx950", pool="default", axes={"heads": ((64, 64),)})
    assert "192x128" in caught.value.remedy
