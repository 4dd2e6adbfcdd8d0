"""How near fp32 gradients are to float64 where scores are large; PyTorch is beside in tests/torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.arch import best_host_arch
from tilewright.ops.attention_scores import Numbers, kept

pytestmark = pytest.mark.usefixtures("needs_compiler")

UNIT = 2.0**-24


def normal(generator: np.random.Generator, *shape: int) -> Any:
    return generator.standard_normal(shape).astype(np.float32)


# Rows by which the forward pass is tiled, or one for few rows; with dropout it is plain loops.
@pytest.mark.sampled(5)  # every row count, and both sizes
@pytest.mark.parametrize(("rows", "dropout"), [(130, 0.0), (1, 0.0), (3, 0.0), (5, 0.25)])
@pytest.mark.parametrize("size", [64, 40])
def test_the_weight_of_a_single_key_is_one(rows: int, dropout: float, size: int) -> None:
    """The score of both passes is the same to the bit: a row with one key has dv = dout, however large it is."""
    generator = np.random.default_rng(rows + size)
    q, dout = normal(generator, 1, rows, 2, size), normal(generator, 1, rows, 2, size)
    k, v = (normal(generator, 1, rows, 2, size) for _ in range(2))
    options: dict[str, Any] = {"window": (0, 0), "scale": 1.5}
    options |= {"dropout_p": dropout, "seed": 3} if dropout else {}
    out, lse = tw.attention(q, k, v, return_lse=True, **options)
    dv = tw.attention_backward(dout, q, k, v, out, lse, **options)[2]
    kept = (out != 0).any(-1, keepdims=True)
    keep = np.float32(1 / (1 - dropout))
    np.testing.assert_array_equal(dv, np.where(kept, dout * keep, 0))
    assert np.abs(lse).max() > 8


def exact(q: Any, k: Any, v: Any, dout: Any, scale: float) -> dict[str, Any]:
    """In float64: heads before rows."""
    q, k, v, dout = (each.astype(np.float64).transpose(0, 2, 1, 3) for each in (q, k, v, dout))
    scores = q @ k.swapaxes(-1, -2) * scale
    top = scores.max(-1, keepdims=True)
    sums = np.exp(scores - top).sum(-1, keepdims=True)
    p = np.exp(scores - top) / sums
    out, dp = p @ v, dout @ v.swapaxes(-1, -2)
    ds = p * (dp - (dout * out).sum(-1, keepdims=True)) * scale
    found = {"out": out, "dq": ds @ k, "dk": ds.swapaxes(-1, -2) @ q, "dv": p.swapaxes(-1, -2) @ dout}
    return {**{name: each.transpose(0, 2, 1, 3) for name, each in found.items()}, "lse": (top + np.log(sums))[..., 0]}


@pytest.mark.parametrize(
    ("rows", "keys", "largest"), [(96, 257, 3.0), (96, 257, 80.0), (64, 4096, 20.0), (2, 700, 60.0)]
)
def test_errors_are_those_of_rounding_scores(rows: int, keys: int, largest: float) -> None:
    """Weights are as exact as scores and lse are in fp32: half a unit of the last place, and a little for sums.

    Without fused operations each product of a score is rounded too: as much again.
    """
    generator = np.random.default_rng(keys)
    q, dout = normal(generator, 2, rows, 2, 64), normal(generator, 2, rows, 2, 64)
    k, v = (normal(generator, 2, keys, 2, 64) for _ in range(2))
    q *= largest / np.abs(np.einsum("brhd,bkhd->bhrk", q, k)).max() * 8
    right = exact(q, k, v, dout, 0.125)
    out, lse = tw.attention(q, k, v, return_lse=True)
    dq, dk, dv = tw.attention_backward(dout, q, k, v, out, lse)
    unit = float(np.spacing(np.float32(np.abs(right["lse"]).max()))) / 2
    allowed = 4 * UNIT + unit * (2 if best_host_arch().name == "generic" else 1)
    for name, got in {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}.items():
        error = np.linalg.norm(got - right[name]) / np.linalg.norm(right[name])
        assert error <= allowed, f"{name}: {error / UNIT:.1f} units, of lse {unit / UNIT:.1f}"


@pytest.mark.parametrize("dropout", [0.0, 0.25])  # tiles, and plain loops
def test_a_soft_cap_that_is_nearly_reached_keeps_its_slope(dropout: float) -> None:
    """1 - tanh^2 has no digits left where tanh is nearly 1: gradients there are small, and as exact as others."""
    generator = np.random.default_rng(5)
    q, k, v = np.ones((1, 40, 1, 16), np.float32), np.ones((1, 6, 1, 16), np.float32), normal(generator, 1, 6, 1, 16)
    k *= np.linspace(8, 9, 6, dtype=np.float32)[None, :, None, None]  # tanh of 8 to 9
    dout = normal(generator, 1, 40, 1, 16)
    options: dict[str, Any] = {"scale": 1 / 16, "softcap": 1.0}
    options |= {"dropout_p": dropout, "seed": 3} if dropout else {}
    out, lse = tw.attention(q, k, v, return_lse=True, **options)
    dq = tw.attention_backward(dout, q, k, v, out, lse, **options)[0]
    keep = np.ones((40, 6))
    if dropout:
        keep = kept(Numbers(scale=1.0, dropout=dropout, seed=3), 0, np.arange(40), 6).astype(np.float64)
    scores = (q[0, :, 0].astype(np.float64) @ k[0, :, 0].astype(np.float64).T) / 16
    p = np.exp(np.tanh(scores)) / np.exp(np.tanh(scores)).sum(-1, keepdims=True)
    dp = dout[0, :, 0].astype(np.float64) @ v[0, :, 0].T * keep
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.cosh(scores) ** 2 / 16
    right = ds @ k[0, :, 0]
    assert np.linalg.norm(dq[0, :, 0] - right) <= 64 * UNIT * np.linalg.norm(right)
