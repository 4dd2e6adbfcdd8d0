"""A convolution as the user has it at run time: sizes, window, strides, dtypes, fused work."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from tilewright.dataclass import dataclass
from tilewright.dtypes import dtype
from tilewright.ops.base import settle
from tilewright.ops.conv.spec import OP, ConvSignature, accumulator, default_output

Sizes = tuple[int, ...]


def dense_strides(shape: Sizes) -> Sizes:
    """Strides in elements of an array whose last index runs fastest; none is under 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def channels_first(shape: Sizes) -> Sizes:
    """Strides, in the order of our shapes, of dense memory whose channels are the second dimension."""
    image, channel, *inner = dense_strides((shape[0], shape[-1], *shape[1:-1]))
    return (image, *inner, channel)


def _dense(strides: Sizes, spatial: Sizes, channels: int) -> bool:
    """Whether strides are those of `dense_strides`, whatever the first size."""
    if len(strides) != len(spatial) + 2 or strides[-1] != 1:
        return False
    step, at = max(1, channels), len(spatial)
    for size in reversed(spatial):
        if strides[at] != step:
            return False
        step *= max(1, size)
        at -= 1
    return strides[0] == step


_last_checked: tuple[Any, bool] = (None, False)


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """Channels and filters are totals over all groups; what belongs to one group is a property.

    Strides are in elements, in the order image (w: filter), spatial, channel, and empty ones mean dense channels-last.
    In backward directions x and w name the gradients' places: `x` is the input or its gradient, `y` the output or its.
    """

    op: ClassVar[str] = OP

    batch: int
    channels: int
    filters: int
    size: Sizes  # of the input, one to three dimensions
    window: Sizes
    groups: int = 1
    stride: Sizes = ()
    dilation: Sizes = ()
    before: Sizes = ()  # padding before the first pixel of each dimension
    after: Sizes = ()  # and after the last
    variant: str = "forward"
    dtype: str = "fp32"
    dtype_out: str = ""
    dtype_d: str = ""
    epilogue: str = "PassThrough"
    num_d: int = 0
    full_d: int = 0  # how many of the D tensors are as large as y; the others are one value a channel
    deterministic: bool = False
    x_strides: Sizes = ()
    w_strides: Sizes = ()
    y_strides: Sizes = ()
    aligned: bool = True  # x, w and y begin at multiples of 16 bytes

    def __post_init__(self) -> None:
        settle(self)
        put, count = object.__setattr__, len(self.size)
        for name, value in (("stride", 1), ("dilation", 1), ("before", 0)):
            if not getattr(self, name):
                put(self, name, (value,) * count)
        if not self.after:
            put(self, "after", self.before)
        if not self.dtype_out:
            put(self, "dtype_out", default_output(self.dtype))
        if not self.dtype_d:
            put(self, "dtype_d", self.dtype_out)
        for name in "xwy":
            if not getattr(self, f"{name}_strides"):
                put(self, f"{name}_strides", dense_strides(getattr(self, f"{name}_shape")))

    @property
    def written(self) -> str:
        """Which of x, w and y is the result."""
        return {"forward": "y", "backward_data": "x", "backward_weight": "w"}[self.variant]

    @property
    def out(self) -> Sizes:
        """Spatial sizes of the output; 0 where the window does not fit."""
        return _out(self.size, self.window, self.stride, self.dilation, self.before, self.after)

    # Shapes in the order of the strides: channels last.

    @property
    def x_shape(self) -> Sizes:
        return (self.batch, *self.size, self.channels)

    @property
    def w_shape(self) -> Sizes:
        return (self.filters, *self.window, self.group_channels)

    @property
    def y_shape(self) -> Sizes:
        return (self.batch, *self.out, self.filters)

    @property
    def group_channels(self) -> int:
        return self.channels // max(1, self.groups)

    @property
    def group_filters(self) -> int:
        return self.filters // max(1, self.groups)

    @property
    def gemm(self) -> tuple[int, int, int]:
        """m, n and k of one group's implicit GEMM."""
        pixels, taps = self.batch * prod(self.out), prod(self.window)
        if self.variant == "forward":
            return pixels, self.group_filters, self.group_channels * taps
        if self.variant == "backward_data":
            return self.batch * prod(self.size), self.group_channels, self.group_filters * taps
        return self.group_filters, self.group_channels * taps, pixels

    @property
    def signature(self) -> ConvSignature:
        spatial = 3 if len(self.size) == 3 else 2
        return _signature(
            self.variant, spatial, self.dtype, self.dtype_out, self.dtype_d, self.epilogue, self.num_d
        )  # fmt: skip

    @property
    def flops(self) -> int:
        """The same for every direction."""
        return 2 * self.batch * prod(self.out) * self.filters * self.group_channels * prod(self.window)

    @property
    def bytes(self) -> int:
        """Each operand read once, the result written once."""
        element, result = dtype(self.dtype).bytes, dtype(self.dtype_out).bytes
        x, y = self.batch * self.channels * prod(self.size), self.batch * self.filters * prod(self.out)
        w = self.filters * self.group_channels * prod(self.window)
        written = x if self.variant == "backward_data" else w if self.variant == "backward_weight" else y
        d = self.full_d * y + (self.num_d - self.full_d) * self.filters
        return (x + w + y - written) * element + written * result + d * dtype(self.dtype_d).bytes

    @property
    def lies_dense(self) -> bool:
        """Whether all operands are dense channels-last memory."""
        global _last_checked
        problem, known = _last_checked  # a selection asks more than once
        if problem is not self:
            known = (
                _dense(self.x_strides, self.size, self.channels)
                and _dense(self.w_strides, self.window, self.group_channels)
                and _dense(self.y_strides, self.out, self.filters)
            )
            _last_checked = self, known
        return known

    def dense(self) -> ConvProblem:
        """The same problem with dense channels-last operands."""
        if self.aligned and self.lies_dense:
            return self
        return replace(self, x_strides=(), w_strides=(), y_strides=(), aligned=True)

    def laid(self, **strides: Sizes) -> ConvProblem:
        """The same problem with other strides."""
        return replace(self, **strides)  # type: ignore[arg-type]

    @property
    def channels_last(self) -> bool:
        """Whether channels of x, w and y are contiguous."""
        return self.x_strides[-1] == self.w_strides[-1] == self.y_strides[-1] == 1

    def describe(self) -> str:
        def text(sizes: Sizes) -> str:
            return "x".join(map(str, sizes))

        description = f"conv {self.signature.label()} n={self.batch} c={self.channels} k={self.filters}"
        description += f" {text(self.size)} window={text(self.window)}"
        for name, plain in (("stride", 1), ("dilation", 1), ("before", 0)):
            if any(value != plain for value in getattr(self, name)):
                description += f" {'padding' if name == 'before' else name}={text(getattr(self, name))}"
        if self.after != self.before:
            description += f" after={text(self.after)}"
        if self.groups != 1:
            description += f" groups={self.groups}"
        return description if self.channels_last else description + " channels-first"


def minimal_filtering(problem: ConvProblem) -> bool:
    """Whether Winograd's filtering computes it: windows of 3 x 3, at every place, of floats."""
    p = problem
    return len(p.window) > 1 and p.window[-2:] == (3, 3) and p.stride[-2:] == (1, 1) and p.dtype != "int8"


@lru_cache(maxsize=4096)  # most of what is asked about a problem needs it
def _out(size: Sizes, window: Sizes, stride: Sizes, dilation: Sizes, before: Sizes, after: Sizes) -> Sizes:
    return tuple(
        max(0, (pixels + first + last - (taps - 1) * apart - 1) // max(1, step) + 1)
        for pixels, taps, step, apart, first, last in zip(size, window, stride, dilation, before, after, strict=False)
    )


@lru_cache(maxsize=4096)  # sizes change, and these do not
def _signature(
    variant: str, spatial: int, dtype: str, dtype_out: str, dtype_d: str, epilogue: str, num_d: int
) -> ConvSignature:
    return ConvSignature(
        variant=variant,
        spatial=spatial,
        dtype=dtype,
        dtype_acc=accumulator(dtype),
        dtype_out=dtype_out,
        dtype_d=dtype_d if num_d else dtype_out,
        epilogue=epilogue,
        num_d=num_d,
    )
