"""DLPack by hand: reading capsules of any element type, and exporting memory as one.

NumPy's own `from_dlpack` refuses bf16 and fp8, which are half of what kernels eat, so the structs
of the DLPack header (versions 0.x and 1.x) are mirrored here.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.dtypes import BY_DLPACK, DTYPES
from tilewright.errors import ProblemError
from tilewright.runtime.devices import ANY, HOST, HOST_KIND, Place, dlpack_type, dlpack_types, module_of, wrong_place
from tilewright.runtime.devices import device as device_at
from tilewright.runtime.lines import dense_strides, extent
from tilewright.runtime.torch_arrays import conversion

_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
# What DLPack calls devices that no backend of ours claims, for errors.
_DEVICE_NAMES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_MOST_DIMENSIONS = 64  # more than any library has: a number beyond it is no rank
_LEAST_ADDRESS = 4096  # nothing is mapped below
_MOST_BYTES = 1 << 57  # no process has more to address


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_READ_ONLY = 1  # bit of `flags`

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid.restype = ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer.restype = ctypes.c_void_p
_CapsuleDestructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_new_capsule.restype = ctypes.py_object
# The destructor runs while its capsule dies, so it gets the address, never a new reference.
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

_NAME = b"dltensor"  # module level: a capsule keeps only the pointer to its name
_NAME_VERSIONED = b"dltensor_versioned"


@dataclass(frozen=True, slots=True)
class Imported:
    """One DLPack tensor.  Holding `capsule` keeps the memory; dropping it calls the producer's deleter."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    writeable: bool
    capsule: object
    place: Place = HOST


def speaks(array: Any) -> bool:
    """Whether DLPack can be asked of an array; its type knows, so that objects with a mind of their own are not."""
    kind = type(array)
    return hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")


def host_or_device(code: int, index: int) -> Place:
    """Where memory of a DLPack device is; pinned host memory counts as the host's."""
    kind, pinned = dlpack_types().get(code, (_DEVICE_NAMES.get(code, f"type {code}"), False))
    return HOST if pinned or kind == HOST_KIND else Place(kind, index)


def device_of(what: str, array: Any) -> tuple[int, int]:
    """DLPack's type and index of the device an array is on."""
    try:
        code, index = array.__dlpack_device__()
        return int(code), int(index)
    except Exception as error:  # whatever a producer raises, it is nowhere
        raise refuse_export(what, array, f"it does not say where it is ({error})") from error


def place_of(what: str, device: tuple[int, int], kind: str) -> Place:
    """Where memory of a DLPack device is for kernels of a kind, or an error where they cannot read it."""
    code, index = int(device[0]), int(device[1])
    if kind != HOST_KIND and dlpack_types().get(code) == (kind, True):
        return Place(kind, ANY)
    place = host_or_device(code, index)
    if place.kind != kind:
        raise wrong_place(what, place, kind)
    return place


def refuse_export(what: str, array: Any, why: str) -> ProblemError:
    return ProblemError(
        f"{what} cannot be read through DLPack: {why}",
        rule="array-dlpack",
        value=type(array).__name__,
        remedy="give an array with memory of its own that its library lets others read",
    )


def _capsule_of(what: str, array: Any, place: Place) -> Any:
    # The producer orders its work before ours: it must know the stream our kernels go to.
    stream: dict[str, Any] = {} if place.kind == HOST_KIND or place.ordinal == ANY else {"stream": _stream(place)}
    try:
        try:
            return array.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # a producer older than DLPack 1.0 does not know the argument
            return array.__dlpack__(**stream)
    except Exception as error:  # whatever a producer raises, it gave no array
        raise refuse_export(what, array, str(error)) from error


def _stream(place: Place) -> int:
    """The current stream as DLPack numbers it, which has a number of its own for some default streams."""
    handle = device_at(place).stream()
    return handle or int(getattr(module_of(place.kind), "DLPACK_DEFAULT_STREAM", 0))


def read(what: str, array: Any, kind: str = "cpu") -> Imported:
    """The memory of a DLPack producer as kernels of a kind see it, without a copy."""
    place = place_of(what, device_of(what, array), kind)
    capsule = _capsule_of(what, array, place)
    if _is_valid(capsule, _NAME_VERSIONED):
        managed = _ManagedVersioned.from_address(_pointer(capsule, _NAME_VERSIONED))
        if managed.major != 1:
            raise ProblemError(
                f"{what} speaks DLPack {managed.major}.{managed.minor}, and this version reads 0.x and 1.x",
                rule="array-dlpack",
                value=managed.major,
                remedy="convert it with `numpy.asarray` first",
            )
        tensor, writeable = managed.tensor, not managed.flags & _READ_ONLY
    elif _is_valid(capsule, _NAME):
        tensor, writeable = _Managed.from_address(_pointer(capsule, _NAME)).tensor, True
    else:
        raise ProblemError(
            f"{what}.__dlpack__() did not return a DLPack capsule",
            rule="array-dlpack",
            value=type(capsule).__name__,
            remedy="give an array of a library that speaks DLPack",
        )
    name = _dtype_of(what, tensor.dtype)
    shape, strides = _sizes_of(what, tensor)
    address = (tensor.data or 0) + tensor.byte_offset
    if not tensor.data and 0 not in shape:
        raise _damaged(what, f"it has no memory for its shape {shape}", "array-null")
    low, high = extent(shape, strides, DTYPES[name].bytes)
    if high and (high - low > _MOST_BYTES or not _LEAST_ADDRESS <= address + low < address + high <= sys.maxsize):
        places = f"{address + low:#x} to {address + high:#x}"
        raise _damaged(what, f"its elements are at {places}, where no memory can be", "array-null")
    return Imported(address, shape, strides, name, writeable, capsule, place)


def _damaged(what: str, why: str, rule: str = "array-dlpack") -> ProblemError:
    return ProblemError(
        f"{what} cannot be read through DLPack: {why}",
        rule=rule,
        value=why,
        remedy="give an array that has memory, or a copy of it",
    )


def _dtype_of(what: str, dtype: _DataType) -> str:
    known = BY_DLPACK.get((dtype.code, dtype.bits)) if dtype.lanes == 1 else None
    if known is not None:
        return known
    name = f"{_CODE_NAMES.get(dtype.code, f'code {dtype.code}')}{dtype.bits}" + (
        f"x{dtype.lanes}" if dtype.lanes != 1 else ""
    )
    raise ProblemError(
        f"{what} has elements of type {name}, which no kernel takes",
        rule="array-dtype",
        value=name,
        remedy=conversion(what, name, f"{what}.astype('{{}}')"),
    )


def _sizes_of(what: str, tensor: _Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides, of a producer that may say anything."""
    rank = tensor.ndim
    if not 0 <= rank <= _MOST_DIMENSIONS:
        raise _damaged(what, f"it has {rank} dimensions")
    if rank and not tensor.shape:
        raise _damaged(what, f"it has {rank} dimensions and no shape")
    shape = tuple(tensor.shape[:rank]) if rank else ()
    if any(size < 0 for size in shape):
        raise _damaged(what, f"its shape is {shape}")
    strides = tuple(tensor.strides[:rank]) if rank and tensor.strides else dense_strides(shape)
    return shape, strides


# Exported tensors by address of their managed struct: struct, shape array and owner stay alive here until
# the consumer calls the deleter.
_exported: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _exported.pop(address, None)


def _capsule_dies(capsule: int) -> None:
    # A consumer renames the capsule it takes; one that still has its first name was never taken.
    if _is_valid_raw(capsule, _NAME):
        _exported.pop(_pointer_raw(capsule, _NAME), None)


# C may call these for as long as the process lives, so they are never collected.
_c_forget = _Deleter(_forget)
_c_capsule_dies = _CapsuleDestructor(_capsule_dies)


class Exporter:
    """Memory as a DLPack producer, for `from_dlpack` of any array library."""

    def __init__(
        self,
        owner: object,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        place: Place = HOST,
    ) -> None:
        self._owner, self._address, self._shape, self._strides, self._dtype = owner, address, shape, strides, dtype
        self._device = (dlpack_type(place), place.ordinal)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: object = None, **_versions: object) -> Any:
        rank = len(self._shape)
        sizes = (ctypes.c_int64 * (2 * rank))(*self._shape, *self._strides)
        managed = _Managed()
        tensor = managed.tensor
        tensor.data, tensor.byte_offset, tensor.ndim = self._address, 0, rank
        tensor.device.type, tensor.device.id = self._device
        kind = DTYPES[self._dtype]
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = kind.dlpack_code, 8 * kind.bytes, 1
        start = ctypes.addressof(sizes)
        tensor.shape = ctypes.cast(start, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(start + 8 * rank, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _c_forget
        address = ctypes.addressof(managed)
        _exported[address] = (managed, sizes, self._owner)
        # A consumer that fails drops the capsule while its error propagates, and no Python can run in a destructor
        # then: it lives on until this object goes.
        self._last = _new_capsule(address, _NAME, ctypes.cast(_c_capsule_dies, ctypes.c_void_p))
        return self._last


def from_dlpack_of(array: Any) -> Callable[[Any], Any] | None:
    """The `from_dlpack` of the library an array comes from, if it is easily found."""
    namespace = getattr(array, "__array_namespace__", None)
    module = namespace() if callable(namespace) else sys.modules.get(type(array).__module__.partition(".")[0])
    convert = getattr(module, "from_dlpack", None)
    return convert if callable(convert) else None
