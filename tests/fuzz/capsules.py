"""Producers of DLPack capsules, honest and not, made by hand from the words of its standard.

Every capsule that leaves a producer is counted, and so is every call of its deleter: in the end each was called once.
A capsule that lies about how much memory it has is not among them: nobody can tell.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.libraries import torch
from tests.fuzz.memory import Array, Live, numpy_type

_CODES = {"i": 0, "u": 1, "f": 2, "V": 3, "c": 5, "b": 6}
_MORE_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Old(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
# The destructor runs while its capsule dies: it gets addresses and makes no references.
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NAMES = (b"dltensor", b"dltensor_versioned", b"used_dltensor", b"tensor")  # a capsule keeps only the address


@dataclass
class Count:
    """Of one capsule: what its deleter was called."""

    struct: Any
    owner: Any
    deleted: int = 0


_alive: dict[int, Count] = {}
_wrong: list[str] = []


def _delete(address: int) -> None:
    found = _alive.get(address)
    if found is None:
        _wrong.append("the deleter of a capsule that is not there any more was called")
        return
    found.deleted += 1
    if found.deleted > 1:
        _wrong.append(f"the deleter of a capsule was called {found.deleted} times")


def _die(capsule: int) -> None:
    """What a producer's destructor does: a capsule nobody took is deleted with it."""
    for name in _NAMES[:2]:
        if _valid(capsule, name):
            _delete(_pointer(capsule, name))


_c_delete = _Deleter(_delete)
_c_die = _Deleter(_die)


def normalized() -> list[str]:
    """What is wrong with the deleters now that every capsule should be gone; all is forgotten then."""
    found = list(_wrong)
    left = sum(not one.deleted for one in _alive.values())
    if left:
        found.append(f"{left} capsule(s) were never deleted")
    _alive.clear()
    _wrong.clear()
    return found


def unsettled() -> bool:
    return bool(_wrong) or any(not one.deleted for one in _alive.values())


def type_of(dtype: str) -> tuple[int, int]:
    """DLPack's code and bits."""
    kind = numpy_type(dtype)
    code = _MORE_CODES.get(kind.name)
    return (code if code is not None else _CODES[kind.kind]), 8 * int(kind.itemsize)


class Boom(Exception):
    """What a producer may raise as well as anything else."""


def _no_shape(tensor: Any, _struct: Any) -> None:
    tensor.shape = None


def _fields(**values: Any) -> Callable[[Any, Any], None]:
    """A lie that sets fields of the tensor, or of what is around it."""

    def lie(tensor: Any, struct: Any) -> None:
        for name, value in values.items():
            setattr(struct if name in ("major", "flags") else tensor, name, value)

    return lie


def _sizes(name: str, value: int) -> Callable[[Any, Any], None]:
    """A lie that writes a number into the first place of the shape or the strides."""

    def lie(tensor: Any, _struct: Any) -> None:
        address = getattr(tensor, name)
        if address and tensor.ndim > 0:
            ctypes.c_int64.from_address(address).value = value

    return lie


# Lies that can be told: whoever believes one reads memory that is not there, or not what it seems.
LIES: dict[str, Callable[[Any, Any], None]] = {
    "no data": _fields(data=None),
    "no shape": _no_shape,
    "rank -1": _fields(ndim=-1),
    "rank 99": _fields(ndim=99),
    "rank 2^31-1": _fields(ndim=2**31 - 1),
    "lanes 4": _fields(lanes=4),
    "lanes 0": _fields(lanes=0),
    "no bits": _fields(bits=0),
    "odd bits": _fields(bits=7),
    "code 99": _fields(code=99),
    "opaque": _fields(code=3),
    "version 2": _fields(major=2),
    "version 0": _fields(major=0),
    "size -1": _sizes("shape", -1),
    "size 2^62": _sizes("shape", 2**62),
    "stride 2^62": _sizes("strides", 2**62),
    "stride -2^62": _sizes("strides", -(2**62)),
    "offset 2^64-1": _fields(byte_offset=2**64 - 1),
    "offset 2^63": _fields(byte_offset=2**63),
    "data at 8": _fields(data=8, byte_offset=2**64 - 8),
}
# What goes wrong before there is a tensor.
MANNERS = (
    "raises",
    "raises TypeError",
    "raises nothing to say",
    "gives None",
    "gives 42",
    "gives bytes",
    "used",
    "renamed",
    "no name",
    "twice",  # the same capsule for every question
    "device raises",
    "device of one",
    "device of text",
    "device None",
    "cuda",
    "rocm",
    "device -1",
    "device 2^40",
)
HOSTILE = (*LIES, *MANNERS)
# What is unusual and right.
HONEST = ("", "old", "shifted", "dense", "namespace", "stubborn", "pinned")
IN_TORCH = "in torch"  # honest too, where there is PyTorch


class Producer:
    """Memory as something that only speaks DLPack."""

    def __init__(self, recipe: Array, address: int, memory: Any) -> None:
        self._recipe, self._address, self._memory, self._kind = recipe, address, memory, recipe.kind
        self._handed_out: Any = None

    def __dlpack_device__(self) -> Any:
        answers: dict[str, Any] = {
            "device of one": (1,),
            "device of text": ("cpu", "0"),
            "device None": None,
            "cuda": (2, 0),
            "rocm": (10, 3),
            "device -1": (-1, -1),
            "device 2^40": (1 << 40, 0),
            "pinned": (3, 0),
        }
        if self._kind == "device raises":
            raise Boom("nowhere")
        return answers.get(self._kind, (1, 0))

    def __dlpack__(self, *, stream: Any = None, **versions: Any) -> Any:
        kind = self._kind
        if kind in ("old", "stubborn") and versions:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        errors = {"raises": Boom("no"), "raises TypeError": TypeError("never"), "raises nothing to say": Boom()}
        if kind in errors:
            raise errors[kind]
        answers = {"gives None": None, "gives 42": 42, "gives bytes": b"dltensor"}
        if kind in answers:
            return answers[kind]
        if kind == "twice" and self._handed_out is not None:
            return self._handed_out
        self._handed_out = None
        found = self._capsule(versioned=bool(versions) and kind not in ("old", "stubborn", "dense"))
        if kind == "twice":
            self._handed_out = found
        return found

    def _capsule(self, versioned: bool) -> Any:
        recipe = self._recipe
        rank = len(recipe.shape)
        steps = [stride // recipe.itemsize for stride in recipe.strides]
        sizes = (ctypes.c_int64 * max(1, 2 * rank))(*recipe.shape, *steps)
        struct = _Versioned(major=1, minor=1) if versioned else _Old()
        tensor = struct.tensor
        start = ctypes.addressof(sizes)
        shift = 64 if self._kind == "shifted" else 0
        tensor.data, tensor.byte_offset = self._address - shift, shift
        tensor.device_type, tensor.device_id, tensor.ndim = 1, 0, rank
        tensor.code, tensor.bits = type_of(recipe.dtype)
        tensor.lanes = 1
        tensor.shape, tensor.strides = start, start + 8 * rank
        if self._kind == "dense" and list(steps) == _dense(recipe.shape):
            tensor.strides = None
        if versioned:
            struct.flags = 0 if recipe.writeable else 1
        struct.deleter = ctypes.cast(_c_delete, ctypes.c_void_p)
        lie = LIES.get(self._kind)
        if lie is not None and (versioned or not self._kind.startswith("version")):
            lie(tensor, struct)
        return self._named(struct, (sizes, self._memory), _NAMES[1] if versioned else _NAMES[0])

    def _named(self, struct: Any, owner: Any, name: bytes) -> Any:
        other = {"used": _NAMES[2], "renamed": _NAMES[3], "no name": None}
        address = ctypes.addressof(struct)
        if self._kind in other:  # nobody may take it, so nobody deletes it
            self._kept = struct, owner
            return _new(address, other[self._kind], None)
        _alive[address] = Count(struct, owner)
        return _new(address, name, ctypes.cast(_c_die, ctypes.c_void_p))


class NumpyProducer(Producer):
    """One whose library is NumPy, which does not know all element types."""

    def __array_namespace__(self) -> Any:
        return np


class TorchProducer(Producer):
    """One whose library makes tensors, and copies what it takes."""

    def __array_namespace__(self) -> Any:
        class Library:
            @staticmethod
            def from_dlpack(producer: Any) -> Any:
                return torch.from_dlpack(producer).clone()

        return Library


def _dense(shape: tuple[int, ...]) -> list[int]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


def produce(live: Live) -> Any:
    recipe = live.recipe
    assert isinstance(recipe, Array)
    kind = {"namespace": NumpyProducer, IN_TORCH: TorchProducer}.get(recipe.kind, Producer)
    return kind(recipe, live.address, live.base)


def must_be_refused(recipe: Array) -> bool | None:
    """Whether what a producer of DLPack does can only be refused; None where it may be right as well."""
    if recipe.kind not in HOSTILE or recipe.kind == "twice":
        return False
    about_sizes = recipe.kind.startswith(("size", "stride", "no shape"))
    about_memory = recipe.kind in LIES and recipe.kind.startswith(("size", "stride", "offset", "no data", "data"))
    if (about_sizes and not recipe.shape) or (about_memory and 0 in recipe.shape):
        return None
    if recipe.kind.startswith("stride") and recipe.shape[0] == 1:
        return None
    return None if recipe.kind.startswith("version") else True  # a producer of the old kind has no version
