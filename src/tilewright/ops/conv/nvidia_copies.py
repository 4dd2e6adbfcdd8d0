"""Convolutions that NVIDIA kernels compute in copies: padded where little is aligned, folded where channels are few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.nvidia_places import LINE_BYTES, MOST, PIECE, axes, class_axis, dense_pixels, violation
from tilewright.ops.conv.problem import ConvProblem

FOLDED_PIXEL, FOLDED_WIDTH, FOLDED_COLUMNS = 8, 64, 256  # cuda/conv_folded_shape.h


def padded_limits(problem: ConvProblem, merged: bool) -> Iterator[Violation]:
    """conv_host_padded.h."""
    p = problem
    side_by_side = (p.channels, p.filters) if merged else (p.group_channels, p.group_filters)
    if p.batch == 0:
        yield violation("nv-walk", "there are no images to walk over")
        return
    if p.groups != 1 and any(one % PIECE for one in side_by_side):
        which = "all groups" if merged else "a group"
        yield violation("nv-groups", f"the channels or filters of {which} are no whole {PIECE}s")
        return
    if min((*p.x_strides, *p.w_strides, *p.y_strides)) < 1:
        yield violation("nv-padded", "a stride is below 1")
        return
    if p.num_d and p.filters % PIECE:
        yield violation("nv-padded", "D tensors are not copied, and filters are no whole 8s")
    if p.full_d and p.y_strides[-1] != 1:
        yield violation("nv-padded", "D tensors are not copied, and channels lie apart")
    copied = padded_elements(p, merged)
    if not copied:
        yield violation("nv-padded", "nothing is there to be copied")
    if any(one >= MOST for one in copied.values()):
        yield violation("nv-walk", "2^31 or more elements to copy")


def padded_elements(problem: ConvProblem, merged: bool) -> dict[str, int]:
    """Of the copies, by operand: channels of each are whole 8s, in the filters of merged groups too."""
    larger = padded(problem, merged)
    shapes = {one: getattr(larger, f"{one}_shape") for one in padded_copies(problem, merged)}
    return {one: prod(shape[:-1]) * -(-shape[-1] // PIECE) * PIECE for one, shape in shapes.items()}


def padded_copies(problem: ConvProblem, merged: bool) -> str:
    """Which of x, w and y are copied: those of no whole 8s of channels, unaligned ones, and uneven pixels.

    The filters of merged groups are spread or picked element by element, whatever taps and filters lie apart."""
    p, found, data = problem, "", problem.variant == "backward_data"
    result = {"forward": "y", "backward_data": "x", "backward_weight": "w"}[p.variant]
    for one, odd in (
        ("x", p.channels % PIECE or (data and not dense_pixels(p.x_strides, p.x_shape))),
        ("w", p.channels % PIECE or p.filters % PIECE or not dense_pixels(p.w_strides, (1, *p.w_shape[1:]))),
        ("y", p.filters % PIECE or not (data or dense_pixels(p.y_strides, p.y_shape))),
    ):
        size = DTYPES[p.dtype_out if one == result else p.dtype].bytes
        *strides, channel = getattr(p, f"{one}_strides")
        if one == "w" and merged:
            odd, strides = not dense_pixels(p.w_strides, (1, *p.w_shape[1:])), []
        if odd or not p.aligned or channel != 1 or any(stride * size % LINE_BYTES for stride in strides):
            found += one
    return found


def padded(problem: ConvProblem, merged: bool) -> ConvProblem:
    """The convolution of aligned copies."""
    p, copied = problem, padded_copies(problem, merged)
    x, w, y = (() if one in copied else getattr(p, f"{one}_strides") for one in "xwy")
    channels, filters = (-(-one // PIECE) * PIECE for one in (p.channels, p.filters))
    return replace(p, channels=channels, filters=filters, aligned=True, x_strides=x, w_strides=w, y_strides=y)


def folded_limits(problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_folded.h."""
    p, data = problem, problem.variant == "backward_data"
    if p.batch == 0:
        yield violation("nv-walk", "there are no images to walk over")
        return
    if p.groups != 1:
        yield violation("nv-groups", "there are groups")
    if p.channels > FOLDED_PIXEL or (data and _folded_columns(p) > FOLDED_COLUMNS):
        yield violation("nv-folded", "there are too many channels to fold")
    if not data and (p.window[-1] > FOLDED_WIDTH // FOLDED_PIXEL or p.dilation[-1] != 1):
        yield violation("nv-folded", "the window is too wide to fold")
    if not p.channels_last:
        yield violation("nv-channels-last", "channels do not lie side by side")
        return
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if max(folded_elements(p)) * 2 >= MOST or p.batch * prod(p.size) >= MOST // 2:
        yield violation("nv-walk", "2^30 or more elements to copy")


def folded_elements(problem: ConvProblem) -> tuple[int, int, int]:
    """Of two bytes, of the copies of pixels, weights and results; backward_data has sums of four."""
    p = problem
    if p.variant == "backward_data":
        inner = folded(p)
        weights = inner.filters * prod(inner.window) * -(-inner.channels // 64) * 64
        return 0, weights, 2 * prod(inner.y_shape)
    wide = (p.out[-1] - 1) * p.stride[-1] + FOLDED_WIDTH // FOLDED_PIXEL
    return p.batch * prod(p.size[:-1]) * wide * FOLDED_PIXEL, p.filters * prod(p.window[:-1]) * FOLDED_WIDTH, 0


def folded(problem: ConvProblem) -> ConvProblem:
    """The convolution of many channels that a folded one is computed as."""
    p = problem
    if p.variant == "backward_data":
        return _folded_data(p)
    starts = (p.out[-1] - 1) * p.stride[-1] + 1
    strides = [FOLDED_PIXEL, (starts + FOLDED_WIDTH // FOLDED_PIXEL - 1) * FOLDED_PIXEL]
    for size in reversed(p.size[:-1]):
        strides.append(strides[-1] * size)
    return replace(
        p,
        channels=FOLDED_WIDTH,
        size=(*p.size[:-1], starts),
        window=(*p.window[:-1], 1),
        dilation=(*p.dilation[:-1], 1),
        before=(*p.before[:-1], 0),
        after=(*p.after[:-1], 0),
        x_strides=(*reversed(strides), 1),
        w_strides=(),
    )


def _folded_columns(p: ConvProblem) -> int:
    """The taps of a row, or the pixels of a stride."""
    return -(-p.channels * (p.window[-1] if prod(p.stride) == 1 else prod(p.stride)) // 8) * 8


def _folded_data(p: ConvProblem) -> ConvProblem:
    """Over y, with the taps of a row as filters, or the pixels of x that lie in one stride."""
    walked = [class_axis(max(size, stride), w, o, stride, d, b) for size, w, o, stride, d, b in axes(p)]
    before, window = [-first for first, _, _, _ in walked], [far + 1 for _, _, far, _ in walked]
    out = [-(-size // stride) for size, stride in zip(p.size, p.stride, strict=True)]
    if prod(p.stride) == 1:
        before[-1], window[-1], out[-1] = 0, 1, p.out[-1]
    after = tuple(o - 1 + w - y - b for o, w, y, b in zip(out, window, p.out, before, strict=True))
    return ConvProblem(
        batch=p.batch,
        channels=p.filters,
        filters=_folded_columns(p),
        size=p.out,
        window=tuple(window),
        before=tuple(before),
        after=after,
        dtype=p.dtype,
        dtype_out="fp32",
        x_strides=p.y_strides,
        aligned=p.aligned,
    )
