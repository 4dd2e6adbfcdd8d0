"""Which copies kernels make of operands that are not aligned, or whose channels are not contiguous: for people.

What decides is `padded` of include/tilewright/cuda/conv/copies_limits.h, which this repeats for remarks alone.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.problem import ConvProblem, Sizes

IN_PLACE, WHERE_APART, FILLED_UP = range(3)  # `Copies` of copies_limits.h
LINE_BYTES = 16  # what TMA asks of addresses and strides


class Needs(NamedTuple):
    """What a family asks of operands that copies are made of: `Needs` of copies_limits.h."""

    whole_groups: bool = False  # groups of one channel and one filter, whole 16 bytes of them
    any_filters: bool = False  # w may have any strides, if channels are contiguous and taps even; groups are joined
    any_pixels: bool = False  # x may, and w where its taps are even: channels apart, too


def dense_pixels(strides: Sizes, shape: Sizes) -> bool:
    """Whether pixels have one stride, images too; a stride along one pixel says nothing."""
    step = apart = strides[-2]
    for stride, size, more in zip(reversed(strides[1:-2]), reversed(shape[2:-1]), reversed(shape[1:-2]), strict=True):
        apart *= size
        if more > 1 and stride != apart:
            return False
    return shape[0] == 1 or strides[0] == step * prod(shape[1:-1])


def _piece(problem: ConvProblem) -> int:
    """Channels that are 16 bytes."""
    return LINE_BYTES // DTYPES[problem.dtype].bytes


def _whole(count: int, piece: int) -> int:
    return -(-count // piece) * piece


def padded_elements(problem: ConvProblem, asks: Needs) -> dict[str, int]:
    """Of the copies, by operand: channels of each are whole 16 bytes, in the filters of joined groups too."""
    larger, piece = padded(problem, asks), _piece(problem)
    shapes = {operand: getattr(larger, f"{operand}_shape") for operand in padded_copies(problem, asks)}
    return {operand: prod(shape[:-1]) * (_whole(shape[-1], piece) if operand == "w" else shape[-1])
            for operand, shape in shapes.items()}  # fmt: skip


def padded_copies(problem: ConvProblem, asks: Needs) -> str:
    """Which of x, w and y are copied: those of which there is more, unaligned ones, uneven pixels, channels apart.

    The filters of joined groups are spread or picked element by element, whatever the strides of taps and filters."""
    p, copied, data = problem, "", problem.variant == "backward_data"
    larger = _larger(p, asks)
    more = {"x": larger.channels != p.channels, "y": larger.filters != p.filters}
    more["w"] = any(more.values())
    taps = dense_pixels(p.w_strides, (1, *p.w_shape[1:]))
    for operand, odd in (
        ("x", data and not dense_pixels(p.x_strides, p.x_shape)),
        ("w", not taps),
        ("y", not (data or dense_pixels(p.y_strides, p.y_shape))),
    ):
        size = DTYPES[p.dtype_out if operand == p.written else p.dtype].bytes
        *strides, channel = getattr(p, f"{operand}_strides")
        unaligned = not p.aligned or any(stride * size % LINE_BYTES for stride in strides)
        if operand == "w" and asks.any_filters:
            unaligned, channel = not p.aligned, 1 if asks.whole_groups else channel
        if operand != "y" and asks.any_pixels:
            odd, unaligned, channel = operand == "w" and odd, False, 1
        if odd or more[operand] or unaligned or channel != 1:
            copied += operand
    return copied


def copies_text(problem: ConvProblem, asks: Needs) -> str:
    """For people: what is copied, and how much."""
    p, larger = problem, padded(problem, asks)
    texts, total = [], 0
    for operand, elements in padded_elements(p, asks).items():
        total += elements * DTYPES[p.dtype_out if operand == p.written else p.dtype].bytes
        how = "transposed to channels-last" if getattr(p, f"{operand}_strides")[-1] != 1 else "aligned"
        texts.append(f"{operand} ({how}{', back' if operand == p.written else ''})")
    grown = [
        f"{name} from {before} to {after}"
        for name, before, after in (
            ("channels", p.channels, larger.channels),
            ("filters", p.filters, larger.filters),
        )
        if before != after
    ]
    filled = f", {' and '.join(grown)}" if grown else ""
    return f"copies {', '.join(texts)}: {total / 1e6:.1f} MB{filled}"


def _larger(p: ConvProblem, asks: Needs) -> ConvProblem:
    """Groups of one channel, or the channels and filters of one group, filled up to whole 16 bytes."""
    piece = _piece(p)
    groups, channels, filters = p.groups, p.channels, p.filters
    if asks.whole_groups:
        groups = _whole(p.groups, piece)
        channels, filters = groups * p.group_channels, groups * p.group_filters
    elif p.groups == 1:
        channels, filters = channels if asks.any_pixels else _whole(channels, piece), _whole(filters, piece)
    if (groups, channels, filters) == (p.groups, p.channels, p.filters):
        return p
    return replace(p, groups=groups, channels=channels, filters=filters)


def padded(problem: ConvProblem, asks: Needs) -> ConvProblem:
    """The convolution of aligned copies."""
    p, copied = problem, padded_copies(problem, asks)
    x, w, y = (() if operand in copied else getattr(p, f"{operand}_strides") for operand in "xwy")
    return replace(_larger(p, asks), aligned=True, x_strides=x, w_strides=w, y_strides=y)
