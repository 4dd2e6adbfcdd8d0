"""What the strides of an operand may be, whatever the op: how far it reaches, and whether its elements are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilewright.ops.base import Violation

MAX_SPAN = 1 << 60  # elements: byte offsets are 64-bit


def too_far(name: str, shape: Sequence[int], strides: Sequence[int]) -> Iterator[Violation]:
    """An operand of more elements, or that reaches further, than offsets can say; strides of 1 may be left out."""
    elements = prod(max(1, size) for size in shape)
    reach = sum(max(0, size - 1) * abs(stride) for size, stride in zip(shape, strides, strict=False))
    if max(elements, reach) >= MAX_SPAN:
        text = "x".join(map(str, shape))
        yield Violation("size-huge", f"{name} of {text} spans {max(elements, reach)} elements", "split the problem")


def written_apart(name: str, shape: Sequence[int], strides: Sequence[int]) -> Iterator[Violation]:
    """A result whose elements share memory."""
    if overlaps(shape, strides):
        message = (
            f"{name} is written with strides {tuple(strides)} over {tuple(shape)}: different elements share memory"
        )
        yield Violation("stride-overlap", message, "give strides under which elements are apart")


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Unless distinct indices surely name distinct elements."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride <= reach:
            return 0 not in shape
        reach += stride * (size - 1)
    return False
