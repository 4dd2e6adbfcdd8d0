"""Convolutions that NVIDIA kernels compute in copies: by any pipeline where little is aligned or channels lie apart,
folded where channels are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from tilewright.backends.cuda.conv.places import LINE_BYTES, MOST, axes, class_axis, dense_pixels, violation
from tilewright.backends.cuda.conv.resources import inside
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule

FOLDED_PIXEL, FOLDED_WIDTH, FOLDED_COLUMNS = 8, 64, 256  # cuda/conv/folded/shape.h


class Needs(NamedTuple):
    """What a pipeline asks of operands that copies are made of (cuda/conv/host_copies.h)."""

    whole_groups: bool  # groups of one channel and one filter, whole 16 bytes of them
    any_filters: bool  # w may lie anywhere, if channels are side by side and taps even; groups are joined
    any_pixels: bool  # x may, and w where its taps are even: channels apart, too


def needs(schedule: ConvSchedule) -> Needs:
    pipeline = inside(schedule.pipeline)
    depthwise = pipeline in ("depthwise", "depthwise_tile")
    joined = depthwise or pipeline == "band_weight" or getattr(schedule, "merged", False)
    return Needs(depthwise, joined, pipeline == "folded")


def fills_up(pipeline: str) -> bool:
    """Whether it is for operands too whose channels lie side by side: others were made for such, and chosen among."""
    return pipeline in ("padded", "padded_depthwise", "padded_depthwise_tile")


def without_copies(schedule: ConvSchedule) -> ConvSchedule:
    """What runs in the copies."""
    return replace(schedule, pipeline=inside(schedule.pipeline))  # type: ignore[type-var]


def padded_limits(problem: ConvProblem, schedule: ConvSchedule) -> Iterator[Violation]:
    """conv/padded/host.h."""
    p, asks, piece = problem, needs(schedule), _piece(problem)
    if p.channels_last and not fills_up(schedule.pipeline):  # asked most often, of kernels that are not for it
        yield violation("nv-padded", "channels lie side by side")
        return
    if asks.whole_groups and (p.group_channels != 1 or p.group_filters != 1):
        yield violation("nv-groups", "groups are of more than one channel or filter")
        return
    if p.batch == 0:
        yield violation("nv-walk", "there are no images to walk over")
        return
    side_by_side = (p.channels, p.filters) if asks.any_filters else (p.group_channels, p.group_filters)
    if p.groups != 1 and not asks.whole_groups and any(one % piece for one in side_by_side):
        which = "all groups" if asks.any_filters else "a group"
        yield violation("nv-groups", f"the channels or filters of {which} are no whole {piece}s")
        return
    if min((*p.x_strides, *p.w_strides, *p.y_strides)) < 1:
        yield violation("nv-padded", "a stride is below 1")
        return
    if asks.whole_groups and _strips(p):
        yield violation("nv-padded", "vectors of 4 channels lie side by side, which others take as they are")
        return
    copied = padded_copies(p, schedule)
    if not copied or not (fills_up(schedule.pipeline) or any(getattr(p, f"{one}_strides")[-1] != 1 for one in copied)):
        yield violation("nv-padded", "nothing is there to be copied")
        return
    if any(one >= MOST for one in padded_elements(p, schedule).values()):
        yield violation("nv-walk", "2^31 or more elements to copy")


def _strips(p: ConvProblem) -> bool:
    """Whether depthwise kernels read it where it lies."""
    strides = (*p.x_strides[:-1], *p.y_strides[:-1])
    return p.aligned and p.x_strides[-1] == p.y_strides[-1] == 1 and not any(one % 4 for one in (p.groups, *strides))


def _piece(problem: ConvProblem) -> int:
    """Channels that are 16 bytes."""
    return LINE_BYTES // DTYPES[problem.dtype].bytes


def _whole(count: int, piece: int) -> int:
    return -(-count // piece) * piece


def padded_elements(problem: ConvProblem, schedule: ConvSchedule) -> dict[str, int]:
    """Of the copies, by operand: channels of each are whole 16 bytes, in the filters of joined groups too."""
    larger, piece = padded(problem, schedule), _piece(problem)
    shapes = {one: getattr(larger, f"{one}_shape") for one in padded_copies(problem, schedule)}
    return {one: prod(shape[:-1]) * (_whole(shape[-1], piece) if one == "w" else shape[-1])
            for one, shape in shapes.items()}  # fmt: skip


def padded_copies(problem: ConvProblem, schedule: ConvSchedule) -> str:
    """Which of x, w and y are copied: those of which there is more, unaligned ones, uneven pixels, channels apart.

    The filters of joined groups are spread or picked element by element, whatever taps and filters lie apart."""
    p, found, data, asks = problem, "", problem.variant == "backward_data", needs(schedule)
    larger = _larger(p, schedule)
    more = {"x": larger.channels != p.channels, "y": larger.filters != p.filters}
    more["w"] = any(more.values())
    taps = dense_pixels(p.w_strides, (1, *p.w_shape[1:]))
    for one, odd in (
        ("x", data and not dense_pixels(p.x_strides, p.x_shape)),
        ("w", not taps),
        ("y", not (data or dense_pixels(p.y_strides, p.y_shape))),
    ):
        size = DTYPES[p.dtype_out if one == p.written else p.dtype].bytes
        *strides, channel = getattr(p, f"{one}_strides")
        unaligned = not p.aligned or any(stride * size % LINE_BYTES for stride in strides)
        if one == "w" and asks.any_filters:
            unaligned, channel = not p.aligned, 1 if asks.whole_groups else channel
        if one != "y" and asks.any_pixels:
            odd, unaligned, channel = one == "w" and odd, False, 1
        if odd or more[one] or unaligned or channel != 1:
            found += one
    return found


def copies_told(problem: ConvProblem, schedule: ConvSchedule) -> str:
    """For people: what is copied, and how much."""
    p, larger = problem, padded(problem, schedule)
    said, total = [], 0
    for one, elements in padded_elements(p, schedule).items():
        total += elements * DTYPES[p.dtype_out if one == p.written else p.dtype].bytes
        how = "turned to channels-last" if getattr(p, f"{one}_strides")[-1] != 1 else "aligned"
        said.append(f"{one} ({how}{', back' if one == p.written else ''})")
    grown = [
        f"{name} from {before} to {after}"
        for name, before, after in (
            ("channels", p.channels, larger.channels),
            ("filters", p.filters, larger.filters),
        )
        if before != after
    ]
    filled = f", {' and '.join(grown)}" if grown else ""
    return f"copies {', '.join(said)}: {total / 1e6:.1f} MB{filled}; {inside(schedule.pipeline)} runs on them"


def _larger(p: ConvProblem, schedule: ConvSchedule) -> ConvProblem:
    """Groups of one channel, or the channels and filters of one group, filled up to whole 16 bytes."""
    asks, piece = needs(schedule), _piece(p)
    groups, channels, filters = p.groups, p.channels, p.filters
    if asks.whole_groups:
        groups = _whole(p.groups, piece)
        channels, filters = groups * p.group_channels, groups * p.group_filters
    elif p.groups == 1:
        channels, filters = channels if asks.any_pixels else _whole(channels, piece), _whole(filters, piece)
    if (groups, channels, filters) == (p.groups, p.channels, p.filters):
        return p
    return replace(p, groups=groups, channels=channels, filters=filters)


def padded(problem: ConvProblem, schedule: ConvSchedule) -> ConvProblem:
    """The convolution of aligned copies."""
    p, copied = problem, padded_copies(problem, schedule)
    x, w, y = (() if one in copied else getattr(p, f"{one}_strides") for one in "xwy")
    return replace(_larger(p, schedule), aligned=True, x_strides=x, w_strides=w, y_strides=y)


def folded_limits(problem: ConvProblem) -> Iterator[Violation]:
    """conv/folded/host.h."""
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
    if p.y_strides[-1] != 1:
        yield violation("nv-channels-last", "channels of y do not lie side by side")
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
