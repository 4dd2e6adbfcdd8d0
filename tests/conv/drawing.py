"""Convolutions drawn by hypothesis: small, of every direction, rank and kind of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.ops.conv.problem import ConvProblem, Sizes, channels_first, dense_strides
from tilewright.ops.conv.spec import VARIANTS

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def convolutions(draw: Draw, variants: tuple[str, ...] = VARIANTS, most: int = 7) -> ConvProblem:
    """Legal problems of fp32 with dense operands, channels last or first."""
    rank = draw(st.sampled_from([2, 2, 1, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, filters = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    window: list[int] = []
    others: dict[str, list[int]] = {"size": [], "stride": [], "dilation": [], "before": [], "after": []}
    for _ in range(rank):
        window.append(draw(st.integers(1, 3)))
        others["stride"].append(draw(st.sampled_from([1, 1, 2, 3])))
        others["dilation"].append(draw(st.sampled_from([1, 1, 2])))
        for side in ("before", "after"):
            others[side].append(draw(st.integers(0, 2)))
        reach = (window[-1] - 1) * others["dilation"][-1] + 1
        least = max(1, reach - others["before"][-1] - others["after"][-1])
        others["size"].append(draw(st.integers(least, max(least, most if rank < 3 else 4))))
    made = ConvProblem(
        batch=draw(st.sampled_from([1, 2, 3, 0])),
        channels=channels,
        filters=filters,
        window=tuple(window),
        groups=groups,
        variant=draw(st.sampled_from(variants)),
        **{name: tuple(values) for name, values in others.items()},  # type: ignore[arg-type]
    )
    first = {f"{one}_strides": channels_first(getattr(made, f"{one}_shape")) for one in "xwy" if draw(st.booleans())}
    return made.laid(**first)


def array(seed: int, shape: Sizes, strides: Sizes | None = None, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Small whole numbers: their sums are exact in every float type, however they are added."""
    values = np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
    if strides is None or strides == dense_strides(shape) or 0 in shape:
        return values
    order = sorted(range(len(shape)), key=lambda index: -strides[index])
    return np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
