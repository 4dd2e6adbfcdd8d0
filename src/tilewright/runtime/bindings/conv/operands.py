"""The operands of a convolution in the order kernels have them: image (or filter), spatial, channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.errors import ProblemError, UnknownNameError, an, counted, nearest, shown
from tilewright.ops.conv.problem import Sizes, dense_strides
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings import numbers
from tilewright.runtime.requests import Slot

# A call has two of the first three; which of x, w and y the result is follows from its direction.
SLOTS = (
    Slot("x", optional=True, cast=True),
    Slot("w", optional=True, cast=True),
    Slot("dy", optional=True, cast=True),
    Slot("bias", optional=True, cast=True),
    Slot("ds[0]", optional=True, cast=True),
    Slot("ds[1]", optional=True, cast=True),
    Slot("out", written=True, optional=True),
)
X, W, DY, BIAS, D0, D1, OUT = range(len(SLOTS))
# The slots of x, w and y by direction.
PLACES = {
    "forward": {"x": X, "w": W, "y": OUT},
    "backward_data": {"x": OUT, "w": W, "y": DY},
    "backward_weight": {"x": X, "w": OUT, "y": DY},
}

LAST, FIRST = "nhwc", "nchw"
# How else people name the orders, and the spatial dimensions such a name is for.
_NAMES = {"nwc": (LAST, 1), "ndhwc": (LAST, 3), "ncw": (FIRST, 1), "ncdhw": (FIRST, 3), "channels_last": (LAST, 0),
          "channels_first": (FIRST, 0), LAST: (LAST, 0), FIRST: (FIRST, 0)}  # fmt: skip


def bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


whole_number = partial(numbers.whole_number, "conv")
switch = partial(numbers.switch, "conv")


_INTS = "int, or as a tuple of ints"
_AS = {"padding": f"{_INTS} or of pairs (before, after); a window of 3 keeps its size with 1, of 5 with 2"}


def fixed(name: str, value: Any) -> Any:
    """A number or numbers as a key can hold them: ints, and tuples of them."""
    if isinstance(value, (tuple, list)):
        return tuple(fixed(name, number) for number in value)
    return whole_number(name, value, _AS.get(name, "a tuple of ints" if name.endswith("_shape") else _INTS))


def layout_of(name: Any, rank: int) -> str:
    """nhwc or nchw, whatever the name; `rank` counts spatial dimensions."""
    if not isinstance(name, str):
        raise bad(
            "layout-name", f"layout is {an(type(name).__name__)}, not a name", shown(name), "use 'nhwc' or 'nchw'"
        )
    known = _NAMES.get(name.lower())
    if known is None:
        raise UnknownNameError(
            f"{shown(name)} is not an order of dimensions",
            rule="layout-name",
            value=name,
            remedy=nearest(name, [*_NAMES]),
        )
    order, only = known
    if only and only != rank:
        raise bad(
            "layout-rank",
            f"layout {shown(name)} has {counted(only, 'spatial dimension')}, and the arrays have {rank}",
            name,
            f"use {order!r}, which is for any number of them",
        )
    return order


def spatial_numbers(name: str, value: Any, rank: int) -> Sizes:
    """One number for all dimensions, or one for each."""
    if type(value) is int:
        return (value,) * rank
    if isinstance(value, tuple) and len(value) == rank and all(type(number) is int for number in value):
        return value
    raise bad("conv-number", f"{name} is {shown(value)}", shown(value), f"give one number, or {rank} of them")


def paddings(value: Any, rank: int) -> tuple[Sizes, Sizes]:
    """Before and after: one number for all, one a dimension, or a pair (before, after) a dimension."""
    if isinstance(value, tuple) and len(value) == rank and all(isinstance(pair, tuple) for pair in value):
        if all(len(pair) == 2 and all(type(size) is int for size in pair) for pair in value):
            return tuple(pair[0] for pair in value), tuple(pair[1] for pair in value)
    elif type(value) is int or (
        isinstance(value, tuple) and len(value) == rank and all(type(number) is int for number in value)
    ):
        both = spatial_numbers("padding", value, rank)
        return both, both
    remedy = f"give one number, {rank} of them, or {rank} pairs (before, after)"
    raise bad("conv-number", f"padding is {shown(value)}", shown(value), remedy)


def in_order(sizes: Sequence[int], layout: str) -> Sizes:
    """Sizes (or strides) of an array, channels last."""
    sizes = tuple(sizes)
    return sizes if layout == LAST else (sizes[0], *sizes[2:], sizes[1])


def as_given(sizes: Sequence[int], layout: str) -> Sizes:
    """Sizes (or strides) in our order as the user has them."""
    sizes = tuple(sizes)
    return sizes if layout == LAST else (sizes[0], sizes[-1], *sizes[1:-1])


def plain_strides(shape: Sizes, strides: Sizes) -> Sizes:
    """The same places, where sizes of 1 have the strides that dense memory has: those of arrays may be anything."""
    if 0 in shape:
        return dense_strides(shape)
    reversed_strides: list[int] = []
    for index in range(len(shape) - 1, -1, -1):
        inner = reversed_strides[-1] * shape[index + 1] if reversed_strides else 1
        reversed_strides.append(strides[index] if shape[index] > 1 else abs(inner) or 1)
    return tuple(reversed(reversed_strides))


@dataclass(frozen=True, slots=True)
class Operand:
    """An array with its dimensions in our order."""

    what: str
    slot: int
    shape: Sizes
    strides: Sizes
    dtype: str
    odd: bool = False  # it starts at no multiple of 16 bytes

    @classmethod
    def of(cls, slot: int, view: View, layout: str) -> Operand:
        shape = in_order(view.shape, layout)
        strides = plain_strides(shape, in_order(view.strides, layout))
        return cls(view.what, slot, shape, strides, view.dtype, view.address % 16 != 0 and 0 not in shape)

    @property
    def memory(self) -> str:
        """The position of its channels: LAST, FIRST, or nothing where that is the same."""
        channels, pixels = self.shape[-1], max((1, *self.shape[1:-1]))
        if channels <= 1 or pixels <= 1 or 0 in self.shape:
            return ""
        return LAST if self.strides[-1] == 1 else FIRST

    def spread(self, shape: Sizes) -> Operand:
        """Broadcast to a shape: sizes of 1 that stand for more have a stride of 0, and so have all dimensions but the
        channels of what is one number a channel."""
        vector = max(self.shape[:-1]) == 1 < max(shape[:-1])
        strides = tuple(
            0 if mine == 1 and (size != 1 or (vector and axis < len(shape) - 1)) else stride
            for axis, (mine, size, stride) in enumerate(zip(self.shape, shape, self.strides, strict=True))
        )
        return replace(self, strides=strides)
