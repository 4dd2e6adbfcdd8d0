"""Views of the user's arrays: address, shape, strides, element type.  Nothing is copied but by `copy_of`.

NumPy arrays (with the ml_dtypes types) and PyTorch's tensors are read directly; everything else goes through DLPack.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tilewright import lazy
from tilewright.dataclass import dataclass
from tilewright.dtypes import BY_NUMPY_NAME, DTYPES
from tilewright.errors import ProblemError, UnknownNameError, an, nearest, no_memory, shown
from tilewright.runtime import lines, torch_arrays
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.devices import HOST, HOST_KIND, Place, device, wrong_place
from tilewright.runtime.fast_path import Maker
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.requests import Copy, Result

if TYPE_CHECKING:
    from tilewright.runtime import device_arrays, dlpack, staging
    from tilewright.runtime.device_arrays import DeviceArray
else:
    device_arrays, dlpack, staging = lazy.modules("tilewright.runtime", "device_arrays", "dlpack", "staging")


def is_device_array(array: Any) -> TypeGuard[DeviceArray]:
    """Whether it is one of ours; nobody has one before the module is loaded."""
    loaded = sys.modules.get("tilewright.runtime.device_arrays")
    return isinstance(array, getattr(loaded, "DeviceArray", ()))


@dataclass(frozen=True, slots=True)
class View:
    """Memory as a kernel sees it; `owner` keeps it alive."""

    what: str  # the argument's name, for errors
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    writeable: bool
    owner: object
    place: Place = HOST

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].bytes

    @property
    def key(self) -> Any:
        """All that a plan can depend on; on a device whether the address is a multiple of 16 bytes is part of it."""
        aligned = self.place is HOST or self.address % 16 == 0
        return self.shape, self.strides, self.dtype, self.place, aligned, self.writeable

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte and the one after the last; equal when there are no elements."""
        low, high = lines.extent(self.shape, self.strides, self.itemsize)
        return self.address + low, self.address + high

    def transposed(self) -> View:
        """The same memory with the last two dimensions exchanged."""
        shape = (*self.shape[:-2], self.shape[-1], self.shape[-2])
        strides = (*self.strides[:-2], self.strides[-1], self.strides[-2])
        return View(self.what, self.address, shape, strides, self.dtype, self.writeable, self.owner, self.place)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The same memory as a NumPy array of the same element type; of a device, only to compare addresses."""
        if isinstance(self.owner, np.ndarray) and self.owner.shape == self.shape and _same_strides(self, self.owner):
            return self.owner
        low, high = self.bounds
        if low == high:
            return np.empty(self.shape, numpy_dtype(self.dtype))
        memory = (ctypes.c_char * (high - low)).from_address(low)
        memory._owner = self.owner  # type: ignore[attr-defined]  # the array holds `memory`, which holds the owner
        size = self.itemsize
        return np.ndarray(
            self.shape,
            numpy_dtype(self.dtype),
            memoryview(memory),
            self.address - low,
            tuple(stride * size for stride in self.strides),
        )


def _same_strides(view: View, array: np.ndarray[Any, Any]) -> bool:
    return array.strides == tuple(stride * view.itemsize for stride in view.strides)


_names: dict[np.dtype[Any], str] = {}  # those that were met: NumPy works out a dtype's name anew whenever it is asked


def dtype_name(what: str, kind: np.dtype[Any]) -> str:
    """Our name of a NumPy dtype, or one clear error."""
    known = _names.get(kind)
    if known is not None:
        return known
    name = BY_NUMPY_NAME.get(kind.name)
    if name is not None and kind.isnative:
        _names[kind] = name
        return name
    if name is not None:
        raise copy_needed(
            what,
            f"{what} has {kind.str!r} elements, whose bytes are in the other order than this machine's",
            rule="array-byte-order",
            value=kind.str,
            how=f"{what}.astype({what}.dtype.newbyteorder('='))",
        )
    raise ProblemError(
        f"{what} has elements of type {kind.name}, which no kernel takes",
        rule="array-dtype",
        value=kind.name,
        remedy=torch_arrays.conversion(what, kind.name, f"{what}.astype(np.{{}})"),
    )


def number_beside(operand: Any, number: float) -> Any:
    """A number as a 0-d array of fp32: on the device of a tensor or an array of ours, else in host memory."""
    if torch_arrays.is_tensor(operand):
        return torch_arrays.number_like(operand, number)
    array = np.asarray(number, np.float32)
    return device_arrays.DeviceArray.of(operand.device, array) if is_device_array(operand) else array


def conversion_of(view: View, held: str, *, bytes_too: bool = True) -> str:
    """How elements of a view that kernels do not multiply become some they do, as its library writes that."""
    if torch_arrays.is_tensor(view.owner):
        spelled = f"{view.what}.to(torch.{{}})"
    elif is_device_array(view.owner):
        spelled = f"tilewright.to_device({view.what}.numpy().astype(np.{{}}), target)"
    else:
        spelled = (
            f"{view.what}.astype(np.{{}})" if isinstance(view.owner, np.ndarray) else f"{view.what}.astype('{{}}')"
        )
    return torch_arrays.conversion(view.what, held, spelled, bytes_too=bytes_too)


def output_dtype(name: object, possible: Sequence[str] = ()) -> str:
    """An element type given as our name, a NumPy dtype or type, PyTorch's, or a string NumPy knows.

    `possible`: what results of the call can be, for errors.
    """
    ours = (BY_NUMPY_NAME.get(name) or (name if name in DTYPES else None)) if isinstance(name, str) else None
    ours = ours or torch_arrays.name_of(name)
    if ours is not None:
        return ours
    known = list(possible) or [dtype.name for dtype in DTYPES.values() if dtype.held]
    try:
        dtype = np.dtype(name)  # type: ignore[call-overload]
    except Exception:  # NumPy asks objects of any class for what they mean
        if isinstance(name, str):
            raise UnknownNameError(
                f"{shown(name)} is not an element type", rule="dtype-name", value=name, remedy=nearest(name, known)
            ) from None
        text = shown(name).rpartition(".")[2].rstrip("'>")  # jax.numpy.float32 and its like print as module.name
        if text in BY_NUMPY_NAME:
            return BY_NUMPY_NAME[text]
        raise ProblemError(
            f"out_dtype {shown(name)} is not an element type of results",
            rule="array-dtype",
            value=shown(name),
            remedy=f"use one of {', '.join(known)}",
        ) from None
    known_name = BY_NUMPY_NAME.get(dtype.name)
    if known_name is None or not dtype.isnative:
        raise ProblemError(
            f"out_dtype {dtype.name if known_name is None else dtype.str} is an element type no kernel writes",
            rule="array-dtype",
            value=dtype.str,
            remedy=f"use one of {', '.join(known)}",
        )
    return known_name


def _numpy_view(what: str, array: np.ndarray[Any, Any]) -> View:
    masked = sys.modules.get("numpy.ma")  # without which there are none; importing it takes longer than a first call
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise ProblemError(
            f"{what} is a masked array, and kernels know no masks",
            rule="array-type",
            value="MaskedArray",
            remedy=f"give {what}.filled(0), or {what}.data to ignore the mask",
        )
    kind = array.dtype
    name, size = _names.get(kind) or dtype_name(what, kind), kind.itemsize
    shape, strides = array.shape, []
    for length, stride in zip(shape, array.strides, strict=True):
        if stride % size and length > 1:
            raise copy_needed(
                what,
                f"{what} has byte strides {array.strides}, which are no multiple of its {size}-byte elements",
                rule="array-strides",
                value=array.strides,
            )
        strides.append(stride // size)
    return View(what, address_of(array), shape, tuple(strides), name, array.flags.writeable, array)


def _seen(what: str, array: Any, kind: str) -> View:
    """Any supported array as a view, wherever it starts."""
    if isinstance(array, np.ndarray):
        if kind != HOST_KIND:
            raise wrong_place(what, HOST, kind)
        view = _numpy_view(what, array)
    elif is_device_array(array):
        if array.place.kind != kind:
            raise wrong_place(what, array.place, kind)
        view = View(what, array.address, array.shape, array.strides, array.dtype, True, array, array.place)
    elif torch_arrays.is_tensor(array):
        address, shape, strides, name, place = torch_arrays.parts(what, array, kind)
        view = View(what, address, shape, strides, name, True, array, place)
    elif dlpack.speaks(array):
        tensor = dlpack.read(what, array, kind)
        owner = (array, tensor.capsule)
        view = View(
            what, tensor.address, tensor.shape, tensor.strides, tensor.dtype, tensor.writeable, owner, tensor.place
        )
    else:
        kind_of = type(array)
        module = f"{kind_of.__module__}." if kind_of.__name__ == "array" else ""  # Python's own array.array is none
        raise ProblemError(
            f"{what} is {an(module + kind_of.__name__)}, not an array",
            rule="array-type",
            value=type(array).__name__,
            remedy=f"give a NumPy array (np.asarray({what}, dtype=np.float32)) or anything with DLPack",
        )
    return view


def view(what: str, array: Any, kind: str = HOST_KIND) -> View:
    """Any supported array as a view for kernels of a kind of device; alignment is checked, contents are not
    touched.  Strides of 0, which some arrays without elements have, become those of a dense one."""
    seen = _numpy_view(what, array) if type(array) is np.ndarray and kind == HOST_KIND else _seen(what, array, kind)
    if 0 in seen.shape:
        return replace(seen, strides=lines.dense_strides(seen.shape)) if 0 in seen.strides else seen
    if seen.address % seen.itemsize:
        raise copy_needed(
            what,
            f"{what} starts at address {seen.address:#x}, which is not a multiple of its {seen.itemsize}-byte elements",
            rule="array-alignment",
            value=seen.address % seen.itemsize,
        )
    return seen


def array_place(array: Any) -> Place:
    """Where an array says it is; what is no array counts as the host's, and `view` says what is wrong with it."""
    if is_device_array(array):
        return array.place
    if torch_arrays.is_tensor(array):
        return torch_arrays.place_of(array)
    if isinstance(array, np.ndarray) or not dlpack.speaks(array):
        return HOST
    return dlpack.host_or_device(*dlpack.device_of("the array", array))


def copy_of(what: str, array: Any, kind: str = HOST_KIND, by_columns: bool = False) -> Any:
    """The same values in new memory, one after the other: what the caller allowed us to make of an operand.

    `by_columns` exchanges the last two dimensions in memory.
    """
    if not (isinstance(array, np.ndarray) or is_device_array(array)) and not torch_arrays.is_tensor(array):
        array = _seen(what, array, kind).numpy()
    if by_columns and len(array.shape) >= 2:
        transposed = array.T if is_device_array(array) else array.swapaxes(-1, -2)
        copied = copy_of(what, transposed, kind)
        return copied.T if is_device_array(copied) else copied.swapaxes(-1, -2)
    try:
        if isinstance(array, np.ndarray):
            return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
        if torch_arrays.is_tensor(array):
            return torch_arrays.copied(what, array)
    except (MemoryError, RuntimeError) as error:  # PyTorch's is the second
        raise no_memory(f"a copy of {what}", error) from error
    return _copy_on_device(what, array)


def _copy_on_device(what: str, array: DeviceArray) -> DeviceArray:
    copied = device_arrays.DeviceArray.empty(array.device, array.shape, array.dtype)
    size = DTYPES[array.dtype].bytes
    shape, strides = array.shape or (1,), tuple(stride * size for stride in array.strides) or (size,)
    if any(stride < 0 for stride in strides):
        raise ProblemError(
            f"{what} has negative strides on a device, where nothing copies them",
            rule="array-strides",
            value=array.strides,
            remedy="copy it with the library that made it",
        )
    staging.carry_in(array.device, Copy(0, shape, strides, shape, size), copied.address, array.address)
    return copied


def share_memory(x: View, y: View) -> bool:
    """True when two views have a byte in common (or when finding out would take too long)."""
    (x_low, x_high), (y_low, y_high) = x.bounds, y.bounds
    if x_low >= y_high or y_low >= x_high or x_low == x_high or y_low == y_high:
        return False
    try:
        return bool(np.shares_memory(x.numpy(), y.numpy(), max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(view: View) -> bool:
    """True unless distinct indices surely name distinct elements."""
    steps = sorted((abs(s), n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1)
    reach = 1
    for stride, size in steps:
        if stride < reach:
            return 0 not in view.shape
        reach = stride * (size - 1) + reach
    return False


def _slow_address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _find_address_reader() -> Callable[[np.ndarray[Any, Any]], int]:
    """The fastest reader of an array's address that works here.

    `PyArrayObject` of NumPy's C API begins with the object header and the data pointer.  Reading it
    takes a fifth of the time of `array.ctypes.data`; it is tried on samples and used only if it agrees.
    """
    if sys.implementation.name != "cpython":
        return _slow_address
    from_address, offset = ctypes.c_void_p.from_address, object.__basicsize__

    def fast(array: np.ndarray[Any, Any]) -> int:
        return from_address(id(array) + offset).value or 0

    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    samples = (base, base[3:, 2:], base.T, base[:, ::2], np.zeros(0, np.int8))
    return fast if all(fast(sample) == _slow_address(sample) for sample in samples) else _slow_address


address_of = _find_address_reader()


def memory_address(array: np.ndarray[Any, Any] | DeviceArray) -> int:
    """The address of an array of ours, wherever it is."""
    return address_of(array) if isinstance(array, np.ndarray) else array.address


def new_result(example: Any, wanted: Result, place: Place = HOST) -> tuple[Any, int]:
    """A new array for a result and its address: a tensor where `example` is one, else NumPy's (on a device: our own).

    `as_kind_of` makes it one of the library `example` comes from, once the result is there.
    """
    shape, strides, name = wanted.shape, wanted.strides, wanted.dtype
    try:
        if torch_arrays.is_tensor(example):
            tensor = torch_arrays.empty(shape, strides, name, place)
            if tensor is not None:
                at = int(tensor.data_ptr())
                if not at and tensor.numel():
                    raise MemoryError("PyTorch gave a tensor without any")
                return tensor, at
        if place is not HOST:
            held = device_arrays.DeviceArray.empty(device(place), shape, name, strides)
            return held, held.address
        kind = numpy_dtype(name)
        dense = strides == lines.dense_strides(shape)
        array = lines.empty(shape, kind) if dense else _empty_strided(shape, strides, kind)
        return array, address_of(array)
    except (MemoryError, RuntimeError, ValueError, OverflowError) as error:  # each library has its own
        raise no_memory(f"a result of {'x'.join(map(str, shape))} {name}", error) from error


def _empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A new array whose elements follow each other in the order of the strides, which are dense."""
    order = sorted(range(len(shape)), key=lambda index: (-strides[index], index))
    array = lines.empty(tuple(shape[index] for index in order), kind)
    return array.transpose(tuple(order.index(index) for index in range(len(shape))))


def maker(example: Any, wanted: Result, place: Place = HOST) -> Maker | None:
    """What makes the same again in each call; None where only `new_result` knows how."""
    shape, strides, name = wanted.shape, wanted.strides, wanted.dtype
    if torch_arrays.is_tensor(example):
        kind = torch_arrays.dtype_of(name)
        return None if kind is None else Maker(wanted.slot, torch_arrays.allocator(place), (shape, strides, kind))
    if is_device_array(example):
        return Maker(wanted.slot, device_arrays.DeviceArray.empty, (device(place), shape, name, strides))
    if not isinstance(example, np.ndarray) or place is not HOST:
        return None
    if strides == lines.dense_strides(shape) or 0 in shape:
        kind = numpy_dtype(name)
        small = math.prod(shape) * kind.itemsize < lines.LARGE
        return Maker(wanted.slot, np.empty if small else lines.empty, (shape, kind))
    return Maker(wanted.slot, _empty_strided, (shape, strides, numpy_dtype(name)))


def as_kind_of(example: Any, result: Any, wanted: Result) -> Any:
    """A new result as an array of the library `example` comes from, where that takes DLPack.

    Only when it was computed: some libraries copy what they take.
    """
    if isinstance(example, np.ndarray) or is_device_array(example) or torch_arrays.is_tensor(example):
        return result
    if is_device_array(result):
        exporter = result.exporter()
    else:
        exporter = dlpack.Exporter(result, address_of(result), result.shape, wanted.strides, wanted.dtype)
    try:
        convert = dlpack.from_dlpack_of(example)
        return result if convert is None else convert(exporter)
    except Exception:  # whatever a library raises that has no such element type: NumPy's array is still right
        return result
