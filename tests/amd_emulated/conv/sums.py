"""Convolution by its definition, in float64, for the oracle.

Nothing here comes from the product, and it goes about it in another way: the product's reference gathers rows by
number, this lays the input in a frame of zeros and walks over the window, tap by tap, with slices of the frame.  With o
an output pixel, r a place of the window, and i = o * stride - before + r * dilation an input pixel:

    forward          y[n, o, k] = sum over r, c of x[n, i, c] w[k, r, c]
    backward_data    x[n, i, c] = sum over the o and r that lead to i, and k, of y[n, o, k] w[k, r, c]
    backward_weight  w[k, r, c] = sum over n, o of x[n, i, c] y[n, o, k]

where k and c are of one group, and what lies outside x is 0.  Whether a kernel multiplies by these zeros is its own
affair, so a result to which they are added with an infinite or NaN factor is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tests.amd_emulated.number_formats import Array, Format, decode
from tests.amd_emulated.oracle import Sums, exact, finite

FORWARD, DATA, WEIGHT = "forward", "backward_data", "backward_weight"
READ = {FORWARD: ("x", "w"), DATA: ("y", "w"), WEIGHT: ("x", "y")}
WRITTEN = {FORWARD: "y", DATA: "x", WEIGHT: "w"}


@dataclass(frozen=True, slots=True)
class Geometry:
    """Channels and filters of one group; spatial numbers in any number of dimensions."""

    batch: int
    groups: int
    channels: int
    filters: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    out: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of x, w and y, channels last."""
        return {
            "x": (self.batch, *self.size, self.groups * self.channels),
            "w": (self.groups * self.filters, *self.window, self.channels),
            "y": (self.batch, *self.out, self.groups * self.filters),
        }

    @property
    def frame(self) -> tuple[tuple[int, int], ...]:
        """Zeros before and behind the input so that every read lies inside."""
        last = [
            (out - 1) * stride + (window - 1) * dilation + 1
            for out, stride, window, dilation in zip(self.out, self.stride, self.window, self.dilation, strict=True)
        ]
        sides = zip(self.before, self.size, last, strict=True)
        return tuple((before, max(0, end - before - size)) for before, size, end in sides)

    def taps(self) -> Iterator[tuple[Any, Any]]:
        """Indices of a place of the window in filters by group, and of what the output reads there in the frame."""
        for tap in np.ndindex(*self.window):
            starts = [place * dilation for place, dilation in zip(tap, self.dilation, strict=True)]
            sides = zip(starts, self.out, self.stride, strict=True)
            pixels = (slice(start, start + (out - 1) * stride + 1, stride) for start, out, stride in sides)
            yield (slice(None), slice(None), *tap), (slice(None), *pixels)


def _framed(g: Geometry, x: Array) -> Array:
    found = np.pad(x, [(0, 0), *g.frame, (0, 0)])
    return found.reshape(*found.shape[:-1], g.groups, g.channels)


def forward(g: Geometry, x: Array, w: Array) -> Array:
    framed, filters = _framed(g, x), w.reshape(g.groups, g.filters, *g.window, g.channels)
    y = np.zeros((len(x), *g.out, g.groups, g.filters))
    for tap, pixels in g.taps():
        y += np.einsum("n...gc,gkc->n...gk", framed[pixels], filters[tap])
    return y.reshape(len(x), *g.out, g.groups * g.filters)


def backward_data(g: Geometry, y: Array, w: Array) -> Array:
    filters = w.reshape(g.groups, g.filters, *g.window, g.channels)
    given = y.reshape(*y.shape[:-1], g.groups, g.filters)
    framed = _framed(g, np.zeros((len(y), *g.size, g.groups * g.channels)))
    for tap, pixels in g.taps():
        framed[pixels] += np.einsum("n...gk,gkc->n...gc", given, filters[tap])
    inside = tuple(slice(before, before + size) for (before, _), size in zip(g.frame, g.size, strict=True))
    return framed[(slice(None), *inside)].reshape(len(y), *g.size, g.groups * g.channels)


def backward_weight(g: Geometry, x: Array, y: Array) -> Array:
    pixels_of_all = len(x) * prod(g.out)
    framed, given = _framed(g, x), y.reshape(pixels_of_all, g.groups, g.filters)
    w = np.zeros((g.groups, g.filters, *g.window, g.channels))
    for tap, pixels in g.taps():
        read = framed[pixels].reshape(pixels_of_all, g.groups, g.channels)
        w[tap] = np.einsum("pgc,pgk->gkc", read, given)
    return w.reshape(g.groups * g.filters, *g.window, g.channels)


WALKS: dict[str, Callable[[Geometry, Array, Array], Array]] = {
    FORWARD: forward,
    DATA: backward_data,
    WEIGHT: backward_weight,
}


def count(g: Geometry, variant: str) -> int:
    """Products that are summed to an element, at most."""
    if variant == WEIGHT:
        return g.batch * prod(g.out)
    return prod(g.window) * (g.channels if variant == FORWARD else g.filters)


def _outside(g: Geometry, variant: str, second: Array) -> Array | bool:
    """Results for which some factor of `second` that is not finite meets a place where there is no other factor."""
    odd = (~np.isfinite(second)).astype(np.float64)
    if not odd.any():
        return False
    ones = np.ones(g.shapes["y" if variant == DATA else "x"])
    met = WALKS[variant](g, ones, odd)
    if variant == WEIGHT:
        every = odd.reshape(-1, odd.shape[-1]).sum(0).reshape(-1, *(1,) * (len(g.window) + 1))
    else:
        by_group = odd.reshape(g.groups, g.filters, -1, g.channels).sum(2)
        every = by_group.sum(2 if variant == FORWARD else 1).reshape(-1)
    return np.asarray(met < every)


def spread(g: Geometry, variant: str, first: Array, of: Format, merged: int) -> Array | bool:
    """Results that meet an infinity or NaN of another group, times 0, where so many groups are one product."""
    odd = (~np.isfinite(decode(first, of))).astype(np.float64)
    if merged == 1 or not odd.any():
        return False
    every, missing = odd.shape[-1], -g.groups % merged * (odd.shape[-1] // g.groups)
    whole = np.pad(odd, [(0, 0)] * (odd.ndim - 1) + [(0, missing)])  # copies have groups of zeros behind the last
    blocks = whole.reshape(*odd.shape[:-1], -1, merged * (every // g.groups))
    everywhere = np.broadcast_to(blocks.max(-1, keepdims=True), blocks.shape).reshape(whole.shape)[..., :every]
    return np.asarray(WALKS[variant](g, everywhere, np.ones(g.shapes["w"])) > 0)


def convolved(g: Geometry, variant: str, first: Array, second: Array, of: Format) -> Sums:
    """The sums of a direction from the bits of what it reads, in the order of `READ`."""
    with np.errstate(all="ignore"):
        p, q = decode(first, of), decode(second, of)
        total = WALKS[variant](g, p, q)
        sizes = np.abs(total) if of.is_int else WALKS[variant](g, finite(p), finite(q))
        exactly = not of.is_int and exact(p, q, sizes)
        return Sums(total, sizes, count(g, variant), of.is_int, exactly, _outside(g, variant, q))
