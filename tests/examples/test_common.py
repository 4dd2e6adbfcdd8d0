"""What the examples share: the comparison refuses what is wrong, and the float64 references are right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "python"))
import _common
import _exact

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("off", [1e-3, np.nan, np.inf])
def test_a_wrong_element_ends_the_example(off: float) -> None:
    exact = normal(4, 5)
    result = exact.astype(np.float32)
    result[2, 3] += np.float32(off)
    with pytest.raises(SystemExit, match="WRONG"):
        _common.check("x", result, exact)


def test_another_shape_ends_the_example() -> None:
    with pytest.raises(SystemExit, match="shape"):
        _common.check("x", np.zeros((2, 3), np.float32), np.zeros((3, 2)))


def test_integers_are_compared_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    _common.check("x", np.array([1000, 2], np.int32), np.array([1000, 2]))
    assert "int32" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="WRONG"):
        _common.check("x", np.array([1000, 3], np.int32), np.array([1000, 2]))


def test_gradients_of_attention_are_differences_of_attention() -> None:
    q, k, v, do = normal(1, 3, 4, 5), normal(1, 6, 2, 5), normal(1, 6, 2, 5), normal(1, 3, 4, 5)
    keywords = {"bias": normal(1, 4, 3, 6), "visible": np.tri(3, 6, 2, dtype=bool), "keep": normal(1, 4, 3, 6) > -1}
    found = _exact.attention_backward(do, q, k, v, **keywords)

    def loss() -> float:
        return float((_exact.attention(q, k, v, **keywords).o * do).sum())

    for array, gradient in ((q, found.dq), (k, found.dk), (v, found.dv), (keywords["bias"], found.dscores)):
        place, step = tuple(size // 2 for size in array.shape), 1e-6
        array[place] += step
        above = loss()
        array[place] -= 2 * step
        assert (above - loss()) / (2 * step) == pytest.approx(gradient[place], rel=1e-5, abs=1e-8)
        array[place] += step


def test_the_three_directions_of_a_convolution_agree() -> None:
    geometry = _exact.Convolution(stride=2, padding=1, dilation=2, groups=2)
    x, w = normal(2, 8, 9, 4), normal(6, 3, 2, 2)
    y = geometry.forward(x, w)
    dy = normal(*y.shape)
    wanted = np.vdot(y, dy)
    assert np.vdot(x, geometry.backward_data(dy, w, x.shape)) == pytest.approx(wanted)
    assert np.vdot(w, geometry.backward_weight(x, dy, w.shape)) == pytest.approx(wanted)
    pixel = sum(
        x[1, 2 * 1 - 1 + 2 * r, 2 * 2 - 1 + 2 * s, :2] @ w[0, r, s] for r in range(3) for s in range(2)
    )  # the sum of one output pixel, written out
    assert y[1, 1, 2, 0] == pytest.approx(pixel)
