"""Arrays of the host that begin with a line of a cache, as PyTorch's do and NumPy's do not."""

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
