"""Where the operands of convolutions lie that NVIDIA's copy engine fetches: alignment, distances, groups."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.backends.cuda.conv.schedules import BandSchedule, ConvTmaWsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem, Sizes

LINE_BYTES = 16  # what the copy engine asks of addresses and strides
PIECE = 8  # channels of a padded copy are whole 8s
MOST = 1 << 31


def violation(rule: str, message: str) -> Violation:
    return Violation(rule, message, "use another kernel of the pool")


def dense_pixels(strides: Sizes, shape: Sizes) -> bool:
    """Whether pixels lie at equal distances, images too; a stride along one pixel says nothing."""
    step = apart = strides[-2]
    for stride, size, more in zip(reversed(strides[1:-2]), reversed(shape[2:-1]), reversed(shape[1:-2]), strict=True):
        apart *= size
        if more > 1 and stride != apart:
            return False
    return shape[0] == 1 or strides[0] == step * prod(shape[1:-1])


def merged_groups(problem: ConvProblem, schedule: ConvTmaWsSchedule | BandSchedule) -> int:
    """Of how many groups one is made: as few as fill whole stages, two or more; 0 where no number does."""
    if not schedule.merged:
        return 1
    deep = problem.group_filters if problem.variant == "backward_data" else problem.group_channels
    fitting = (n for n in range(2, problem.groups + 1) if problem.groups % n == 0 and n * deep % schedule.tile[2] == 0)
    return next(fitting, 0)


def axes(problem: ConvProblem) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Size, window, output, stride, dilation and padding before, of each dimension."""
    p = problem
    yield from zip(p.size, p.window, p.out, p.stride, p.dilation, p.before, strict=True)


def pixel_axis(size: int, window: int, out: int, stride: int, dilation: int, before: int) -> tuple[int, int, int, int]:
    """First pixel, how far the last lies behind the tensor's, how far taps move it, and how many there are."""
    return -before, -before + (out - 1) * stride - (size - 1), (window - 1) * dilation, out


def class_axis(size: int, window: int, out: int, stride: int, dilation: int, before: int) -> tuple[int, int, int, int]:
    """The same of backward_data."""
    reads = [
        (rest + before - tap * dilation) // stride
        for rest in range(min(stride, size))
        for tap in range(window)
        if (rest + before - tap * dilation) % stride == 0
    ] or [0]
    pixels = -(-size // stride)
    return min(reads), min(reads) + pixels - 1 - (out - 1), max(reads) - min(reads), pixels


def odd_columns(problem: ConvProblem) -> bool:
    """Gradients of weights whose taps are no whole 64s of columns side by side (cuda/conv/tma_ws/host.h)."""
    p = problem
    return p.group_channels % 64 > 0 or (prod(p.window) > 1 and p.w_strides[-2] != p.group_channels)


def ragged(problem: ConvProblem) -> bool:
    """Of those, the ones that leave to where they belong, with nothing in between."""
    p, size = problem, DTYPES[problem.dtype_out].bytes
    whole = p.groups == 1 and p.channels % PIECE == 0 and p.aligned
    return odd_columns(p) and whole and not any(one * size % LINE_BYTES for one in (p.w_strides[0], p.w_strides[-2]))
