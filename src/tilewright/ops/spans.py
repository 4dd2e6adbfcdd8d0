"""What the strides of an operand may be, whatever the op: how far it reaches, and whether its elements are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ops.base import Violation

MAX_SPAN = 1 << 60  # elements: byte offsets are 64-bit


def too_far(name: str, shape: Sequence[int], strides: Sequence[int]) -> Iterator[Violation]:
    """An operand of more elements, or that reaches further, than offsets can say; strides of 1 may be left out.

    Nor may a stride be longer, even of a dimension of one element: structs hold it in 64 bits.
    """
    elements, reach = 1, 0
    for size in shape:
        if size > 1:
            elements *= size
    for size, stride in zip(shape, strides, strict=False):
        if size > 1:
            reach += (size - 1) * abs(stride)
    reach = max(reach, *strides, *(-stride for stride in strides)) if strides else 0
    if elements >= MAX_SPAN or reach >= MAX_SPAN:
        text = "x".join(map(str, shape))
        yield Violation("size-huge", f"{name} of {text} spans {max(elements, reach)} elements", "split the problem")


def written_apart(name: str, shape: Sequence[int], strides: Sequence[int]) -> Iterator[Violation]:
    """A result whose elements share memory."""
    if overlaps(shape, strides):
        message = (
            f"{name} is written with strides {tuple(strides)} over {tuple(shape)}: different elements share memory"
        )
        yield Violation("stride-overlap", message, "give strides under which elements do not overlap")


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Unless distinct indices surely name distinct elements."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride <= reach:
            return 0 not in shape
        reach += stride * (size - 1)
    return False
