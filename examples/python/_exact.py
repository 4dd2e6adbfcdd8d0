"""Attention and convolution in float64, as plain as NumPy has them: what the examples compare with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Softmax(NamedTuple):
    """o is (B, Sq, Hq, Dv), lse (B, Hq, Sq), the weights (B, Hq, Sq, Sk)."""

    o: Array
    lse: Array
    weights: Array


def _heads(array: Array, heads: int) -> Array:
    """(B, S, H, D) as (B, heads, S, D) in float64, each KV head repeated for its query heads (GQA)."""
    wide = array.astype(np.float64).transpose(0, 2, 1, 3)
    return wide.repeat(heads // wide.shape[1], axis=1)


def attention(
    q: Array, k: Array, v: Array, *, bias: Any = 0.0, visible: Any = True, softcap: float = 0.0, keep: Any = 1.0
) -> Softmax:
    """softmax(cap(q.k / sqrt(D)) + bias) v over the visible keys; `keep` multiplies the weights, as dropout does."""
    heads = q.shape[2]
    scores = _heads(q, heads) @ _heads(k, heads).swapaxes(-1, -2) / np.sqrt(q.shape[3])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(visible, scores + bias, -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), -1e300)  # finite where no key is visible
    exponents = np.exp(scores - top)
    total = exponents.sum(axis=-1, keepdims=True)
    weights = np.divide(exponents, total, out=np.zeros_like(exponents), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return Softmax(((weights * keep) @ _heads(v, heads)).transpose(0, 2, 1, 3), lse, weights)


class Gradients(NamedTuple):
    dq: Array
    dk: Array
    dv: Array
    dscores: Array  # (B, Hq, Sq, Sk): that of a bias, before it is summed over what the bias repeats along


def attention_backward(do: Array, q: Array, k: Array, v: Array, **keywords: Any) -> Gradients:
    """The gradients of `attention` with the same keywords, of which a soft cap is none here."""
    heads, heads_kv, keep = q.shape[2], k.shape[2], keywords.get("keep", 1.0)
    weights = attention(q, k, v, **keywords).weights
    wide_do, wide_q, wide_k, wide_v = (_heads(array, heads) for array in (do, q, k, v))
    dweights = (wide_do @ wide_v.swapaxes(-1, -2)) * keep
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    scale = 1.0 / np.sqrt(q.shape[3])

    def of_kv(gradient: Array) -> Array:
        """Summed over the query heads that share a KV head."""
        batch, _, seqlen, size = gradient.shape
        shared = gradient.reshape(batch, heads_kv, heads // heads_kv, seqlen, size).sum(axis=2)
        return np.asarray(shared.transpose(0, 2, 1, 3))

    dq = (scale * dscores @ wide_k).transpose(0, 2, 1, 3)
    dk = of_kv(scale * dscores.swapaxes(-1, -2) @ wide_q)
    return Gradients(dq, dk, of_kv((weights * keep).swapaxes(-1, -2) @ wide_do), dscores)


class Convolution(NamedTuple):
    """The geometry of a convolution of (N, spatial, C) with (K, spatial, C / groups), and its three directions."""

    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    def _taps(self, padded: Array, window: tuple[int, ...]) -> Iterator[tuple[Any, Array]]:
        """For each filter tap, its index in a filter and a view of the padded input: the pixels that it meets."""
        sizes = list(zip(padded.shape[1:-1], window, strict=True))
        counts = [(size - self.dilation * (taps - 1) - 1) // self.stride + 1 for size, taps in sizes]
        for tap in product(*map(range, window)):
            first = [self.dilation * place for place in tap]
            cut = [
                slice(at, at + self.stride * (count - 1) + 1, self.stride)
                for at, count in zip(first, counts, strict=True)
            ]
            yield (slice(None), *tap), padded[(slice(None), *cut)]

    def _padded(self, x: Array) -> Array:
        return np.pad(x.astype(np.float64), [(0, 0), *[(self.padding,) * 2] * (x.ndim - 2), (0, 0)])

    def _by_group(self, array: Array, axis: int) -> list[Array]:
        """Views, one for each group."""
        return np.split(array, self.groups, axis)

    def forward(self, x: Array, w: Array) -> Array:
        parts = []
        for xs, ws in zip(self._by_group(self._padded(x), -1), self._by_group(w.astype(np.float64), 0), strict=True):
            products = [pixels @ ws[tap].T for tap, pixels in self._taps(xs, w.shape[1:-1])]
            parts.append(np.sum(products, axis=0))
        return np.concatenate(parts, axis=-1)

    def backward_data(self, dy: Array, w: Array, input_shape: tuple[int, ...]) -> Array:
        dx = self._padded(np.zeros(input_shape))
        wide_dy, wide_w = (self._by_group(array.astype(np.float64), axis) for array, axis in ((dy, -1), (w, 0)))
        for dxs, dys, ws in zip(self._by_group(dx, -1), wide_dy, wide_w, strict=True):
            for tap, pixels in self._taps(dxs, w.shape[1:-1]):
                pixels += dys @ ws[tap]
        inside = [slice(self.padding, self.padding + size) for size in input_shape[1:-1]]
        return dx[(slice(None), *inside)]

    def backward_weight(self, x: Array, dy: Array, weight_shape: tuple[int, ...]) -> Array:
        dw, pixels_of = np.zeros(weight_shape), range(dy.ndim - 1)
        wide_x, wide_dy = self._by_group(self._padded(x), -1), self._by_group(dy.astype(np.float64), -1)
        for dws, xs, dys in zip(self._by_group(dw, 0), wide_x, wide_dy, strict=True):
            for tap, pixels in self._taps(xs, weight_shape[1:-1]):
                dws[tap] = np.tensordot(dys, pixels, (pixels_of, pixels_of))
        return dw
