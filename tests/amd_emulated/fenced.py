"""Operands in poisoned memory, with fences around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.amd_emulated.number_formats import FORMATS, Array

FENCE, ALIGNED = 512, 256


class Memory:
    """An operand as bits: any shape and strides (in elements; 0 where it repeats, negative where it lies backwards).

    The first element lies `off` bytes behind an aligned address.  All is poison until `put`.
    """

    def __init__(self, dtype: str, shape: Sequence[int], strides: Sequence[int], off: int = 0) -> None:
        size = FORMATS[dtype].bytes
        spans = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)] if all(shape) else []
        below = -size * sum(one for one in spans if one < 0)
        above = size * (sum(one for one in spans if one > 0) + 1) if spans or not shape else 0
        self.dtype = dtype
        self.bytes = np.full(below + above + 2 * FENCE + ALIGNED + off, FORMATS[dtype].poison, np.uint8)
        least = FENCE + below
        start = least + (-(int(self.bytes.ctypes.data) + least)) % ALIGNED + off
        self.address = int(self.bytes.ctypes.data) + start
        self.view: Array = np.ndarray(
            tuple(shape),
            FORMATS[dtype].word,
            self.bytes.data,
            start if above else 0,
            tuple(one * size for one in strides),
        )
        self.before = self.bytes.copy()

    @classmethod
    def plain(cls, size: int) -> Memory:
        """So many bytes."""
        return cls("int8", (size,), (1,))

    def put(self, bits: Array) -> None:
        self.view[...] = bits
        self.before = self.bytes.copy()

    def unchanged(self) -> bool:
        return bool(np.array_equal(self.bytes, self.before))

    def untouched_around(self) -> bool:
        """Whether all but the elements is as it was."""
        now = self.bytes.copy()
        held = self.view.copy()
        self.view[...] = 0
        blank = self.bytes.copy()
        self.bytes[...] = self.before
        self.view[...] = 0
        same = bool(np.array_equal(blank, self.bytes))
        self.bytes[...] = now
        assert np.array_equal(held, self.view)
        return same
