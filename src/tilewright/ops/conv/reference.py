"""What a convolution should give, in float64, and how far from it a kernel may be.

One loop for all directions: over the taps of the filter, each of which is a product of matrices a group,

    forward          y[pixel, k]    += x[pixel at the place, c]   w[k, place, c]     rows are pixels of the output
    backward_data    dx[pixel, c]   += dy[pixel it went to, k]    w[k, place, c]     rows are pixels of the input
    backward_weight  dw[k, place, c] = dy[pixels, k]' x[pixels at the place, c]      rows are filters of a group

so that of a large problem some rows can be computed for themselves.  The one statement of error bounds is the docstring
of `error_bound`; tests, measurements and the command line all judge results by `judgement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem, minimal_filtering
from tilewright.ops.fused import ACTIVATIONS
from tilewright.ops.numerics import (
    TINY32,
    U32,
    Array,
    Check,
    Comparison,
    activation,
    after_activation,
    after_rounding,
    gamma,
    round_to,
    sampled_rows,
)

# Rows of a large problem are sampled: what is left takes a second or so.
FULL_CHECK_FLOPS = 2e9
FILTERING = 16.0  # by how much F(2x2, 3x3) enlarges what is summed, at most
# Numbers of one gathered operand; more rows go in turns.
_GATHERED = 1 << 22


@dataclass(frozen=True, slots=True)
class Exact:
    """The result before its last rounding, and what the bound needs, in rows of the loop (see `rows_of`)."""

    value: Array  # float64
    before: Array  # what went into the activation
    size: Array  # |x||w| + |D| ..., the size of what was summed
    products: Array  # |x||w| (int8: |x.w|), scaled by multiplied Ds
    scaled: Array | float  # by how much multiplied Ds scale an error
    filtered: Array | float = 0.0  # N of the bound for Winograd's filtering, scaled by multiplied Ds


Rows = Any  # an array of indices, or slice(None)
Sums = Callable[[ConvProblem, Array, Array, Array, Rows], Array]


def terms(problem: ConvProblem) -> int:
    """Products that are summed to an element of the result, at most."""
    return problem.gemm[2]


def _row_count(problem: ConvProblem) -> int:
    return problem.gemm[0]


def _places(problem: ConvProblem) -> Iterator[tuple[int, tuple[int, ...]]]:
    yield from enumerate(product(*(range(extent) for extent in problem.window)))


def _taken(problem: ConvProblem, place: tuple[int, ...], pixels: Array) -> tuple[Array, Array]:
    """Rows of x that rows of y (by number) read at a place of the window, and whether there is such a pixel."""
    p = problem
    image, rest = np.divmod(pixels, prod(p.out))
    at, inside = image, np.ones(len(pixels), bool)
    for d, out in enumerate(np.unravel_index(rest, p.out)):
        index = out * p.stride[d] - p.before[d] + place[d] * p.dilation[d]
        inside &= (index >= 0) & (index < p.size[d])
        at = at * p.size[d] + np.clip(index, 0, p.size[d] - 1)
    return at, inside


def _rows_of_y(problem: ConvProblem, place: tuple[int, ...], pixels: Array) -> tuple[Array, Array]:
    """Rows of y that read rows of x (by number) at a place of the window, and whether there is such a pixel."""
    p = problem
    image, rest = np.divmod(pixels, prod(p.size))
    at, inside = image, np.ones(len(pixels), bool)
    for d, index in enumerate(np.unravel_index(rest, p.size)):
        out, left = np.divmod(index + p.before[d] - place[d] * p.dilation[d], p.stride[d])
        inside &= (left == 0) & (out >= 0) & (out < p.out[d])
        at = at * p.out[d] + np.clip(out, 0, p.out[d] - 1)
    return at, inside


def _gathered(table: Array, at: Array, inside: Array) -> Array:
    """Rows of (pixels, groups, channels), zeros where there is none, by group first."""
    rows = np.where(inside[:, None, None], table[at], 0.0) if len(table) else np.zeros((len(at), *table.shape[1:]))
    return rows.transpose(1, 0, 2)


def _by_pixels(p: ConvProblem, table: Array, w: Array, rows: Array, where: Any) -> Array:
    """Forward and backward_data: rows of (rows, groups, columns); w is (places, groups, inner, columns)."""
    out = np.zeros((len(rows), w.shape[1], w.shape[3]))
    step = max(1, _GATHERED // max(1, w.shape[1] * w.shape[2]))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        total = np.zeros((w.shape[1], len(some), w.shape[3]))
        for number, place in _places(p):
            total += _gathered(table, *where(p, place, some)) @ w[number]
        out[start : start + step] = total.transpose(1, 0, 2)
    return out


def _by_filters(p: ConvProblem, x: Array, y: Array, rows: Array) -> Array:
    """Backward_weight: (rows, groups, places, channels)."""
    taps, pixels = prod(p.window), np.arange(p.batch * prod(p.out))
    out = np.zeros((p.groups, len(rows), taps, p.group_channels))
    step = max(1, _GATHERED // max(1, p.channels))
    for start in range(0, len(pixels), step):
        some = pixels[start : start + step]
        mine = y[some][:, :, rows].transpose(1, 2, 0)
        for number, place in _places(p):
            out[:, :, number] += mine @ _gathered(x, *_taken(p, place, some))
    return out.transpose(1, 0, 2, 3)


def sums(problem: ConvProblem, x: Array, w: Array, y: Array, rows: Rows = slice(None)) -> Array:
    """The convolution alone; operands are float64 in the order of the problem's shapes, the result's is not read."""
    p = problem
    chosen = np.arange(_row_count(p))[rows]
    if p.variant == "backward_weight":
        of_x, of_y = x.reshape(-1, p.groups, p.group_channels), y.reshape(-1, p.groups, p.group_filters)
        return _by_filters(p, of_x, of_y, chosen).reshape(len(chosen), -1)
    by_place = w.reshape(p.groups, p.group_filters, prod(p.window), p.group_channels)
    if p.variant == "forward":
        table = x.reshape(-1, p.groups, p.group_channels)
        return _by_pixels(p, table, by_place.transpose(2, 0, 3, 1), chosen, _taken).reshape(len(chosen), p.filters)
    table = y.reshape(-1, p.groups, p.group_filters)
    return _by_pixels(p, table, by_place.transpose(2, 0, 1, 3), chosen, _rows_of_y).reshape(len(chosen), p.channels)


def rows_of(problem: ConvProblem, result: Array, rows: Rows = slice(None)) -> Array:
    """A result (or a D tensor of its shape) as the rows of the loop."""
    p = problem
    if p.variant != "backward_weight":
        return result.reshape(-1, result.shape[-1])[rows]
    by_group = result.reshape(p.groups, p.group_filters, -1).transpose(1, 0, 2)
    return by_group.reshape(p.group_filters, -1)[rows]


def from_rows(problem: ConvProblem, rows: Array) -> Array:
    """All rows of the loop as the result."""
    p = problem
    if p.variant == "forward":
        return rows.reshape(p.y_shape)
    if p.variant == "backward_data":
        return rows.reshape(p.x_shape)
    return rows.reshape(p.group_filters, p.groups, -1).transpose(1, 0, 2).reshape(p.w_shape)


def exact(problem: ConvProblem, arrays: Mapping[str, Any], rows: Rows = slice(None), summed: Sums = sums) -> Exact:
    """The convolution in float64 (sums of int8 products are exact there), without rounding to the output type.

    `arrays` holds x, w and y, of which the result's is not read, and ds, which broadcast to y's shape; all in the order
    of the problem's shapes.  `summed` computes what `sums` does, on a device where that takes less time.
    """
    p = problem
    with np.errstate(all="ignore"):
        read = [
            np.zeros(0) if arrays[operand] is None else np.asarray(arrays[operand]).astype(np.float64)
            for operand in "xwy"
        ]
        total = summed(p, read[0], read[1], read[2], rows)
        if DTYPES[p.dtype].kind == "int":
            total = ((total.astype(np.int64) + 2**31) % 2**32 - 2**31).astype(np.float64)  # int32 sums wrap
            products = np.abs(total)
        else:
            products = summed(p, np.abs(read[0]), np.abs(read[1]), np.abs(read[2]), rows)
        size, scaled = products, np.asarray(1.0)
        for tensor in arrays["ds"]:
            d = rows_of(p, np.broadcast_to(np.asarray(tensor), p.y_shape), rows).astype(np.float64)
            if p.epilogue == "MultiDMultiply":
                total, scaled = total * d, scaled * np.abs(d)
            else:
                total, size = total + d, size + np.abs(d)
        value = activation(p.epilogue, total) if p.epilogue in ACTIVATIONS else total
        may_filter = minimal_filtering(p) and p.variant != "backward_weight"
        filtered = _filtered(p, read) * scaled if may_filter else 0.0
        return Exact(value, total, size * scaled, products * scaled, scaled, filtered)


def filters(spec: KernelSpec) -> bool:
    """Whether a kernel computes by Winograd's filtering, whose bound is wider."""
    return bool(getattr(spec.schedule, "minimal_filtering", False))


def _filtered(problem: ConvProblem, read: list[Array]) -> Array:
    """N of the bound: for each channel of the result the largest inputs of each channel times the sizes of weights."""
    p = problem
    source, weights = read[0] if p.variant == "forward" else read[2], np.abs(read[1])
    largest = np.abs(source).reshape(-1, p.groups, source.shape[-1] // p.groups).max(0, initial=0.0)
    by_group = weights.reshape(p.groups, p.group_filters, -1, p.group_channels).sum(2)
    filtered: Array = np.einsum("gc,gkc->gk" if p.variant == "forward" else "gk,gkc->gc", largest, by_group)
    return filtered.reshape(-1)


def error_bound(problem: ConvProblem, result: Exact, largest: float = 1.0, filtering: bool = False) -> Array:
    """How far each element of a right result may be from `found.value`; `filtering`: of a kernel that `filters`.

    Float outputs.  With u = 2^-24, gamma_n = n u / (1 - n u) and T products summed to an element (forward: channels of
    a group times the window; backward_data: filters of a group times the window; backward_weight: pixels of the
    output), a sum in fp32, in any order and in any number of parts, is within gamma_T |x||w| of the true one; rounding
    the products adds one factor (1 + u), and so

        e0 = gamma_{T+1} |x||w|                     (int8: the sum is exact, so gamma_2 |x.w|)
        e1 = e0 + n_D u (|x||w| + |D0| + |D1|)       each added D; each multiplied D scales e0 and adds u
        e2 = L e1 + 16 u max(1, |z|)                 an activation with Lipschitz constant L, evaluated in fp32
        e  = e2 + u_out (|y| + e2) + s               rounding to the output type, s its smallest number

    plus (T+1) 2^-126, since subnormal terms may be flushed, and of bf16 inputs 2^-126 T times the largest of them,
    since they may be flushed themselves.

    Kernels that compute windows of 3 x 3 with stride 1 by Winograd's filtering F(2x2, 3x3) (forward and
    backward_data), and no others, may be further off: filtering mixes neighbours, and an error is no longer small where
    the pixels under the window are.  Its transforms have matrices A, B and G of one axis; with |x| at most X, and W the
    sum of |w| over the window, sizes grow along an axis by at most max_i sum_p |A_ip| sum_q |B_pq| max_t |G_pt| = 4.
    With C channels (times the depth of the window) summed, products and transforms rounding at most C + 12 times in a
    row,

        e0 = gamma_{T+1} |x||w| + 16 gamma_{C+12} N      N = sum over channels of X W, X the largest of the channel

    F(4x4, 3x3) has 29.4 in the place of 4, so 863 in that of 16, and rounds C + 24 times; that is all it promises for
    any numbers, and too little to find a wrong kernel.  On random numbers its error is 10 to 20 times that of F(2x2):
    of what is said of F(2x2) a fifth with one channel, a twentieth with 8, less with more (F(2x2) itself: an eightieth
    with one), and so F(4x4) is judged by that.  Numbers that were searched for have 3.5 times what is said, with one
    channel.  Where an input is infinite or NaN, filtering gives NaN for all results of the square it belongs to, and so
    it does where transforms overflow: F(2x2) enlarges an input up to 4 times, F(4x4) up to 100.

    Integer outputs are exact up to the rounding of values within 1e-12 of halfway between two integers.
    """
    p = problem
    if DTYPES[p.dtype_out].kind == "int":
        return np.asarray(1e-12 * (1.0 + result.size))
    count = 1 if DTYPES[p.dtype].kind == "int" else terms(p)
    with np.errstate(all="ignore"):
        error = gamma(count + 1) * result.products + p.num_d * U32 * result.size
        if filtering:
            deep = p.window[0] if len(p.window) == 3 else 1
            depth = p.group_filters if p.variant == "backward_data" else p.group_channels
            error = error + FILTERING * gamma(depth * deep + 12) * result.filtered
        error = error + TINY32 * (terms(p) * (1.0 + largest) + 1.0) * result.scaled
        if p.epilogue in ACTIVATIONS:
            error = after_activation(p.epilogue, result.before, error)
        return after_rounding(p.dtype_out, result.value, error)


def reference(problem: ConvProblem, arrays: Mapping[str, Any]) -> Array:
    """The convolution computed in float64 and rounded once to the output type."""
    return from_rows(problem, round_to(exact(problem, arrays).value, problem.dtype_out))


def judgement(problem: ConvProblem, arrays: Mapping[str, Any], summed: Sums = sums) -> Callable[[Any, bool], Check]:
    """The reference, computed now, to compare any number of results with; each with whether its kernel `filters`."""
    p = problem
    rows = sampled_rows(_row_count(p), max(1.0, float(p.flops)), FULL_CHECK_FLOPS)
    expected = exact(p, arrays, rows, summed)
    largest = 0.0
    if p.dtype == "bf16":
        read = {"forward": "xw", "backward_data": "wy", "backward_weight": "xy"}[p.variant]
        largest = sum(
            float(np.max(np.abs(np.asarray(arrays[operand]).astype(np.float32)), initial=0.0)) for operand in read
        )
    largest = largest if np.isfinite(largest) else 0.0
    compared: dict[bool, Comparison] = {}

    def judge(result: Any, filtering: bool) -> Check:
        if filtering not in compared:
            bound = error_bound(p, expected, largest, filtering)
            compared[filtering] = Comparison(expected.value, bound, p.dtype_out, expected.size)
        return compared[filtering](rows_of(p, np.asarray(result), rows))

    return judge


def verify(problem: ConvProblem, arrays: Mapping[str, Any], result: Any, filtering: bool = False) -> Check:
    """Compare a result with the reference: NaN and infinity in the same places, the rest within its bound."""
    return judgement(problem, arrays)(result, filtering)
