"""Arrays in the memory of a device: NumPy in, NumPy out, DLPack for everyone else."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from tilewright.dtypes import BY_NUMPY_NAME, DTYPES
from tilewright.errors import ProblemError
from tilewright.runtime import dlpack, lines
from tilewright.runtime.devices import Device, Memory, Place
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.torch_arrays import conversion

# Element types at places, numbered as they are met: `facts` name them so.
_NUMBERS: dict[tuple[str, Place], int] = {}


class DeviceArray:
    """A strided array on a device.  Its memory goes back when the last view of it is gone."""

    __slots__ = ("_exporter", "_memory", "address", "device", "dtype", "facts", "shape", "strides")

    def __init__(
        self, device: Device, memory: Memory, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
    ) -> None:
        self.device, self._memory = device, memory
        self.address = memory.address
        self.shape, self.strides, self.dtype = shape, strides, dtype  # strides in elements
        # All but the address, for the short path in C.
        kind = _NUMBERS.setdefault((dtype, device.place), len(_NUMBERS))
        self.facts = struct.pack(f"{1 + 2 * len(shape)}q", kind, *shape, *strides)

    @classmethod
    def empty(
        cls, device: Device, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None
    ) -> DeviceArray:
        """New memory for elements that follow each other in the order of the strides (or rows of rows)."""
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        memory = device.allocate(count * DTYPES[dtype].bytes)
        return cls(device, memory, shape, lines.dense_strides(shape) if strides is None else strides, dtype)

    @classmethod
    def of(cls, device: Device, array: np.ndarray[Any, Any]) -> DeviceArray:
        """A copy of a NumPy array on the device; a transposed view stays one."""
        name = BY_NUMPY_NAME.get(array.dtype.name)
        if name is None:
            raise ProblemError(
                f"the array has elements of type {array.dtype.name}, which no kernel takes",
                rule="array-dtype",
                value=array.dtype.name,
                remedy=conversion("it", array.dtype.name, "array.astype(np.{})"),
            )
        flipped = array.ndim >= 2 and array.strides[-2] < array.strides[-1] and not array.flags.c_contiguous
        source = np.asarray(array.swapaxes(-1, -2) if flipped else array, order="C")
        copied = cls.empty(device, source.shape, name)
        copied._write(source)
        return copied.T if flipped else copied

    def _write(self, source: np.ndarray[Any, Any]) -> None:
        self.device.write(self.address, source.ctypes.data, source.nbytes)

    @property
    def place(self) -> Place:
        return self.device.place

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def T(self) -> DeviceArray:
        """The same memory with the last two dimensions exchanged."""
        shape = (*self.shape[:-2], self.shape[-1], self.shape[-2])
        strides = (*self.strides[:-2], self.strides[-1], self.strides[-2])
        return self.view(shape, strides)

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """The same memory from the same address on, in another shape; strides in elements."""
        view = DeviceArray(self.device, self._memory, shape, strides, self.dtype)
        view.address = self.address  # a view may begin elsewhere than its memory
        return view

    def fill(self, byte: int) -> None:
        """Every byte of the memory, in the order of the current stream."""
        self.device.fill(self._memory.address, byte, self._memory.nbytes)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, when the work queued so far is done."""
        raw = ctypes.create_string_buffer(max(1, self._memory.nbytes))
        self.device.read(ctypes.addressof(raw), self._memory.address, self._memory.nbytes)
        kind = numpy_dtype(self.dtype)
        steps = tuple(stride * kind.itemsize for stride in self.strides)
        return np.ndarray(self.shape, kind, memoryview(raw), self.address - self._memory.address, steps).copy("K")

    def exporter(self) -> dlpack.Exporter:
        return dlpack.Exporter(self._memory, self.address, self.shape, self.strides, self.dtype, self.place)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.exporter().__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        # The work that fills this array is ordered on the current stream; whoever reads it elsewhere must wait.
        self.device.synchronize()
        self._exporter = self.exporter()  # kept: it holds the capsule
        return self._exporter.__dlpack__(**keywords)

    def __repr__(self) -> str:
        return f"<DeviceArray {'x'.join(map(str, self.shape))} {self.dtype} on {self.place}>"
