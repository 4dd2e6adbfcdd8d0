"""bias= and residual= beside ds=: what everybody calls them, in the order they are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ProblemError


def array(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


A, B, BIAS, RESIDUAL = array(5, 7), array(7, 6), array(6), array(5, 6)
X, W, CONV_BIAS, CONV_RESIDUAL = array(1, 6, 6, 4), array(8, 3, 3, 4), array(8), array(1, 4, 4, 8)


@pytest.mark.parametrize("epilogue", ["passthrough", "add", "relu"])
def test_gemm_adds_bias_and_residual(epilogue: str) -> None:
    whole = A @ B + BIAS + RESIDUAL
    want = np.maximum(whole, 0) if epilogue == "relu" else whole
    assert np.allclose(tw.gemm(A, B, bias=BIAS, residual=RESIDUAL, epilogue=epilogue), want, atol=1e-5)
    assert np.allclose(tw.gemm(A, B, bias=BIAS, ds=(RESIDUAL,), epilogue=epilogue), want, atol=1e-5)
    one = tw.gemm(A, B, bias=BIAS, epilogue=epilogue)
    assert np.array_equal(one, tw.gemm(A, B, ds=(BIAS,), epilogue="relu" if epilogue == "relu" else "add"))


def test_conv_adds_bias_and_residual() -> None:
    want = tw.conv(X, W, CONV_BIAS) + CONV_RESIDUAL
    assert np.allclose(tw.conv(X, W, CONV_BIAS, residual=CONV_RESIDUAL), want, atol=1e-5)
    relu = tw.conv(X, W, CONV_BIAS, residual=CONV_RESIDUAL, epilogue="relu")
    assert np.allclose(relu, np.maximum(want, 0), atol=1e-5)


def test_they_are_added_and_never_multiplied_by() -> None:
    with pytest.raises(ProblemError, match="residual is added") as caught:
        tw.gemm(A, B, residual=RESIDUAL, epilogue="multiply")
    assert caught.value.rule == "epilogue-bias"
    with pytest.raises(ProblemError, match="residual is added"):
        tw.conv(X, W, residual=CONV_RESIDUAL, epilogue="multiply")


def test_with_ds_there_are_four_at_most() -> None:
    more = RESIDUAL * 2
    fused = tw.gemm(A, B, bias=BIAS, residual=RESIDUAL, ds=(more, BIAS))
    assert np.allclose(fused, A @ B + 2.0 * BIAS + 3.0 * RESIDUAL, atol=1e-5)
    with pytest.raises(ProblemError, match="5 D tensors"):
        tw.gemm(A, B, bias=BIAS, residual=RESIDUAL, ds=(more, BIAS, more))
    with pytest.raises(ProblemError, match="ds must be a tuple or list"):
        tw.gemm(A, B, bias=BIAS, ds=RESIDUAL)


def test_a_registry_takes_them_too() -> None:
    registry = tw.Registry()
    assert np.allclose(registry.run("gemm", A, B, bias=BIAS, residual=RESIDUAL), A @ B + BIAS + RESIDUAL, atol=1e-5)
    found = registry.run("conv", X, W, CONV_BIAS, residual=CONV_RESIDUAL)
    assert np.allclose(found, tw.conv(X, W, CONV_BIAS) + CONV_RESIDUAL, atol=1e-5)
