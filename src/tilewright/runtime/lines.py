"""Arrays in memory: strides and extents; and arrays of the host that begin with a line of a cache, as PyTorch's
do and NumPy's do not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

LINE = 64  # bytes
LARGE = 1 << 20  # bytes of an array for which it is worth more memory and a microsecond


def empty(shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A new array; a large one begins with a line, so that kernels read and write whole ones."""
    size = math.prod(shape) * kind.itemsize
    if size < LARGE:
        return np.empty(shape, kind)
    room = np.empty(size + LINE, np.uint8)
    first = -room.__array_interface__["data"][0] % LINE  # `ctypes.data` makes an object first
    return room[first : first + size].view(kind).reshape(shape)


def lined(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy that begins with a line where it is large and does not."""
    if array.nbytes < LARGE or array.ctypes.data % LINE == 0:
        return array
    copied = empty(array.shape, array.dtype)
    copied[...] = array
    return copied


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of rows of rows; a size of 0 counts as 1, so that no stride is 0."""
    strides, step = [], 1
    for size in shape[:0:-1]:
        strides.append(step)
        step *= size or 1
    strides.append(step)
    return tuple(strides[::-1]) if shape else ()


def extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Bytes before and after the first element that a strided array touches."""
    low, high = 0, 0
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return 0, 0
        reach = (size - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low * itemsize, (high + 1) * itemsize
