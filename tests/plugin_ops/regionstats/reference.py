"""Regionstats in float64, a stage at a time or whole, and how far right results may be from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from regionstats.problem import RegionstatsProblem
from tilewright.ops import numerics

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Exact:
    """A float64 result and the bound of each element's error."""

    value: Array
    bound: Array
    dtype: str


def counts(problem: RegionstatsProblem, lengths: Array) -> Array:
    """Positions of each entry that take part."""
    first = -(-lengths.astype(np.int64) // problem.dilation[0])
    return first * (problem.positions // problem.grid[0] if problem.grid[0] else 0)


def _values(problem: RegionstatsProblem, x: Array, weight: Array | None, shift: Array | None, scale: float) -> Array:
    """v of every position that takes part where nothing is cut off: (n, positions, channels)."""
    steps = tuple(slice(None, None, one) for one in problem.dilation)
    picked = x[(slice(None), *steps)].reshape(problem.n, problem.positions, problem.channels).astype(np.float64)
    with np.errstate(all="ignore"):
        if weight is not None:
            picked = picked * weight.astype(np.float64)
        picked = picked * scale
        return picked if shift is None else picked + shift.astype(np.float64)


def _sizes(problem: RegionstatsProblem, x: Array, weight: Array | None, shift: Array | None, scale: float) -> Array:
    weight, shift = (None if one is None else np.abs(one) for one in (weight, shift))
    return _values(problem, np.abs(x), weight, shift, abs(scale))


def _reduced(values: Array, sizes: Array, taken: Array) -> tuple[Array, Array, Array, Array]:
    """Sum, its size, maximum and the largest size, along the middle axis, of what is taken."""
    mask = taken[:, :, None]
    with np.errstate(all="ignore"):
        total = np.where(mask, values, 0.0).sum(1)
        size = np.where(mask, sizes, 0.0).sum(1)
        peak = np.where(mask, values, -np.inf).max(1, initial=-np.inf)
        largest = np.where(mask, sizes, 0.0).max(1, initial=0.0)
    return total, size, peak, largest


def partial(
    problem: RegionstatsProblem,
    x: Array,
    lengths: Array,
    weight: Array | None,
    shift: Array | None,
    scale: float,
) -> tuple[Exact, Exact]:
    """Sums and maxima of the chunks, (n, chunks, channels).

    A value has at most four roundings (scale, times weight, times x, plus shift); a sum of m values adds m more.
    """
    p = problem
    values, sizes = _values(p, x, weight, shift, scale), _sizes(p, x, weight, shift, scale)
    inside = np.arange(p.positions)[None, :] < counts(p, lengths)[:, None]
    share, more = divmod(p.positions, p.chunks)
    starts = [one * share + min(one, more) for one in range(p.chunks + 1)]
    bounds = [slice(*one) for one in pairwise(starts)]
    parts = [_reduced(values[:, one], sizes[:, one], inside[:, one]) for one in bounds]
    total, size, peak, largest = (np.stack(one, 1) for one in zip(*parts, strict=True))
    terms = share + 1
    with np.errstate(all="ignore"):
        sums = Exact(total, (terms + 5) * numerics.U32 * size + (terms + 4) * numerics.TINY32, "fp32")
        return sums, Exact(peak, 5 * numerics.U32 * largest + 5 * numerics.TINY32, "fp32")


def combine(problem: RegionstatsProblem, sums: Array, peaks: Array, lengths: Array) -> tuple[Exact, Exact]:
    """Mean and peak from the chunks as they are; the peak is one of them, rounded."""
    p, count = problem, counts(problem, lengths)[:, None].astype(np.float64)
    total, size = sums.astype(np.float64).sum(1), np.abs(sums.astype(np.float64)).sum(1)
    with np.errstate(all="ignore"):
        many = np.maximum(count, 1.0)
        mean = np.where(count > 0, total / many, 0.0)
        bound = (p.chunks + 4) * numerics.U32 * size / many + 4 * numerics.TINY32
        peak = peaks.astype(np.float64).max(1, initial=-np.inf)
        last = numerics.after_rounding(p.dtype, peak, np.zeros_like(peak))
    return Exact(mean, bound, "fp32"), Exact(peak, last, p.dtype)


def whole(
    problem: RegionstatsProblem,
    x: Array,
    lengths: Array,
    weight: Array | None = None,
    shift: Array | None = None,
    scale: float = 1.0,
) -> tuple[Exact, Exact]:
    """Mean and peak: the chunks' bounds go through the second stage."""
    sums, peaks = partial(problem, x, lengths, weight, shift, scale)
    mean, peak = combine(problem, sums.value, peaks.value, lengths)
    many = np.maximum(counts(problem, lengths)[:, None], 1)
    with np.errstate(all="ignore"):
        wider = mean.bound + (1 + (problem.chunks + 4) * numerics.U32) * sums.bound.sum(1) / many
        rounded = numerics.after_rounding(problem.dtype, peak.value, peaks.bound.max(1, initial=0.0))
        return Exact(mean.value, wider, "fp32"), Exact(peak.value, rounded, problem.dtype)


def both(found: Sequence[Exact]) -> tuple[Array, Array]:
    """The two values, for tests that want numbers."""
    return found[0].value, found[1].value
