"""Convolutions that AMD kernels compute in copies of their own: any memory, channels-first among it, and any channels.

The same in C++: `hip/conv_copied.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilewright.backends.hip.ck_tile_shape import NATIVE_BYTES
from tilewright.backends.hip.conv.schedules import FastSchedule
from tilewright.backends.hip.conv.shape import even, loads
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem, Sizes

MAX_LINES, MAX_ELEMENTS = 1 << 30, 1 << 31
_REMEDY = "use another kernel of the pool"


def copied_limits(schedule: FastSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Why nothing is copied; what the kernel does with the copies is for others to say."""
    p, inner = problem, copied(schedule, problem)
    made = copies(schedule, problem)
    if not made:
        yield Violation("amd-copied", "nothing is there to be copied", _REMEDY)
    if p.num_d and inner.groups != p.groups:
        message = (
            f"D tensors are not copied, and {p.groups} groups are no multiple of the {schedule.merged} merged ones"
        )
        yield Violation("amd-copied", message, _REMEDY)
    for one in made:
        shape: Sizes = getattr(inner, f"{one}_shape")
        if (lines := prod(shape[:-1])) >= MAX_LINES or lines * _row(p, one, shape[-1]) >= MAX_ELEMENTS:
            message = f"{one} of {'x'.join(map(str, shape))} is to be copied: 2^31 elements or 2^30 pixels are too many"
            yield Violation("amd-copied", message, "split the problem")


def _row(problem: ConvProblem, name: str, channels: int) -> int:
    """Elements from pixel to pixel of a copy: those of results begin at whole accesses."""
    if name == "w" or name != problem.written:
        return channels
    whole = NATIVE_BYTES // DTYPES[problem.dtype_out].bytes
    return -(-channels // whole) * whole


def grains(schedule: FastSchedule, problem: ConvProblem) -> tuple[int, int]:
    """Multiples of which a group's channels and filters are in copies: whole loads of one group, or of merged ones."""
    a, b = loads(problem.signature, schedule)
    together = max(1, a // (schedule.merged & -schedule.merged))
    return (max(together, b), 1) if problem.variant == "forward" else (b, together)


def copied(schedule: FastSchedule, problem: ConvProblem) -> ConvProblem:
    """The convolution of the copies, and of what is not copied."""
    p = problem
    fine_channels, fine_filters = grains(schedule, p)
    groups = -(-p.groups // schedule.merged) * schedule.merged
    channels = -(-p.group_channels // fine_channels) * fine_channels
    filters = -(-p.group_filters // fine_filters) * fine_filters
    larger = replace(
        p, groups=groups, channels=groups * channels, filters=groups * filters, aligned=True,
        x_strides=(), w_strides=(), y_strides=(),
    )  # fmt: skip
    kept = {one: getattr(p, f"{one}_strides") for one in "xwy" if one not in _copies(schedule, p, larger)}
    return larger.laid(**{f"{one}_strides": strides for one, strides in kept.items()})


def copies(schedule: FastSchedule, problem: ConvProblem) -> str:
    """Which of x, w and y are copied: what the kernel cannot take where it lies."""
    return _copies(schedule, problem, copied(schedule, problem))


def _copies(schedule: FastSchedule, p: ConvProblem, larger: ConvProblem) -> str:
    a, b = loads(p.signature, schedule)
    forward, data, weight = (p.variant == one for one in ("forward", "backward_data", "backward_weight"))
    more_groups = larger.groups != p.groups
    more_channels = larger.group_channels != p.group_channels
    more_filters = larger.group_filters != p.group_filters
    taps = data or (p.w_strides[-2] == p.group_channels and even(p.w_strides, (1, *p.w_shape[1:])))
    only_filters = p.w_strides[:1] if forward else p.w_strides[:-1]  # forward reads a filter as one row
    found = {
        "x": more_groups or more_channels or _odd(p, "x", b if weight else a, p.x_strides[:-1]),
        "w": more_groups or more_channels or more_filters or not taps or _odd(p, "w", b, only_filters),
        "y": more_groups or more_filters or _odd(p, "y", a, p.y_strides[:-1])
        or (weight and not even(p.y_strides, p.y_shape)),
    }  # fmt: skip
    return "".join(one for one in "xwy" if found[one])


def _odd(p: ConvProblem, name: str, load: int, strides: Sizes) -> bool:
    """Whether an operand lies so that the kernel cannot read it in whole loads, or write it at all."""
    every: Sizes = getattr(p, f"{name}_strides")
    if every[-1] != 1 or min(every) < 0:
        return True
    read = p.written != name
    return read and ((load > 1 and not p.aligned) or any(one % load for one in strides))
