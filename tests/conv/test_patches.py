"""Windows that lie side by side: the same memory as pixels of more channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ops.conv import CONV
from tilewright.ops.conv.patches import joined_patches
from tilewright.ops.conv.problem import ConvProblem

VIT = ConvProblem(2, 3, 32, (64, 48), (16, 16), stride=(16, 16), dtype="bf16")


def test_a_row_of_a_patch_becomes_one_pixel() -> None:
    joined = joined_patches(VIT)
    assert (joined.channels, joined.size, joined.window, joined.stride) == (48, (64, 3), (16, 1), (16, 1))
    assert joined.out == VIT.out
    assert joined.flops == VIT.flops
    assert joined.bytes == VIT.bytes
    assert joined.y_strides == VIT.y_strides
    assert joined_patches(joined) == joined
    assert CONV.stages(VIT, "sm_90a") == (joined,)


@pytest.mark.parametrize(
    "change",
    [
        {"stride": (16, 8)},
        {"before": (0, 1), "after": (0, 15)},
        {"dilation": (1, 2)},
        {"size": (64, 50)},  # columns behind the last patch, whose gradient is 0
        {"channels": 8},  # whole vectors as it is
        {"window": (14, 14), "stride": (14, 14), "size": (28, 28)},  # 42 channels are none
        {"channels": 6, "filters": 4, "groups": 2},
        {"x_strides": (9216, 48, 1, 3072)},  # channels first
        {"x_strides": (64 * 48 * 4, 48 * 4, 4, 1)},  # a gap behind every pixel
    ],
    ids=str,
)
def test_what_stays_as_it_is(change: dict[str, Any]) -> None:
    values = {"batch": 2, "channels": 3, "filters": 32, "size": (64, 48), "window": (16, 16), "stride": (16, 16)}
    problem = ConvProblem(**{**values, "dtype": "bf16", **change})
    assert joined_patches(problem) is problem


def patches(x: np.ndarray, side: int) -> np.ndarray:
    n, h, w, c = x.shape
    return x.reshape(n, h // side, side, w // side, side, c).transpose(0, 1, 3, 2, 4, 5)


@pytest.mark.parametrize("side", [4, 8, 16])
def test_calls_of_all_directions(side: int) -> None:
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((2, 3 * side, 2 * side, 3)), rng.standard_normal((24, side, side, 3))
    bias, dy = rng.standard_normal(24), rng.standard_normal((2, 3, 2, 24))
    small = {name: value.astype(np.float32) for name, value in {"x": x, "w": w, "bias": bias, "dy": dy}.items()}
    said: dict[str, Any] = {"stride": side, "layout": "nhwc"}
    cut = patches(x, side)
    y = tw.conv(small["x"], small["w"], bias=small["bias"], epilogue="relu", **said)
    expected = np.einsum("nhwijc,kijc->nhwk", cut, w) + bias
    np.testing.assert_allclose(y, np.maximum(expected, 0), atol=2e-3)
    dw = tw.conv_backward_weight(small["x"], small["dy"], w.shape, **said)
    np.testing.assert_allclose(dw, np.einsum("nhwijc,nhwk->kijc", cut, dy), atol=2e-3)
    dx = tw.conv_backward_data(small["dy"], small["w"], x.shape, **said)
    np.testing.assert_allclose(patches(dx, side), np.einsum("nhwk,kijc->nhwijc", dy, w), atol=2e-3)
