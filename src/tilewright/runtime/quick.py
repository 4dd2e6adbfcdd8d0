"""The short way of a call made before: facts of tensors as one key, and a launch with no ctypes in between.

These are C functions of a small library that is built once through the kernel store (its text is
`backends/gpu/host/quick.cpp`).  Where it cannot be built or loaded, or where a tensor's library does not
publish DLPack's exchange table, `prepare` and `reader` answer None and Python does the same, slower.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tilewright import events, settings
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Gpu
    from tilewright.runtime.loader import Kernel

# What a launch answers beside 0 and the status of a kernel.
NOT_APART = -1  # an address is misaligned, or what is written overlaps what is read
ELSEWHERE = -2  # this thread's current device is another one
CAPTURED = -3  # the stream has no workspace yet, or a graph will keep its address

MOST_OPERANDS = 8
MOST_ARGUMENT_BYTES = 504  # of 512, the rest is for addresses nobody reads
_VERSION = 3
_FASTCALL = 0x80
_EXCHANGE = b"dlpack_exchange_api"

Read = Callable[..., "tuple[Any, ...] | None"]


class _Slot(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("offset", "low", "high", "grain"))


class _Call(ctypes.Structure):
    """`Call` of quick.cpp; its size is compared when the library is loaded."""

    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("current", ctypes.c_void_p),
        ("capturing", ctypes.c_void_p),
        ("expected", ctypes.c_uint64),
        ("args", ctypes.c_void_p),
        ("workspaces", ctypes.py_object),
        ("allocate", ctypes.py_object),
        ("allocate_args", ctypes.py_object * 3),
        *((name, ctypes.c_int64) for name in ("workspace_bytes", "clear_bytes", "bytes")),
        *((name, ctypes.c_int64) for name in ("slots", "scalars", "out", "twin")),
        ("scalar_offset", ctypes.c_int64 * 2),
        ("slot", _Slot * MOST_OPERANDS),
    )


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


class Slot(NamedTuple):
    """One address of a call: where it goes in the arguments, which bytes around it are touched, and the power
    of two it is a multiple of."""

    offset: int | None  # None: nowhere, it is only compared
    reach: tuple[int, int]
    grain: int


class _Library:
    """The loaded functions; what they need lives as long as the process."""

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path)
        for name in ("tw_quick_abi_version", "tw_quick_call_bytes"):
            getattr(library, name).restype = ctypes.c_int64
        if library.tw_quick_abi_version() != _VERSION or library.tw_quick_call_bytes() != ctypes.sizeof(_Call):
            raise OSError(f"{path} is of another version")
        self.use_tensors = library.tw_quick_tensors
        self.use_tensors.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
        self._methods = [
            _Method(b"read", ctypes.cast(library.tw_quick_read, ctypes.c_void_p), _FASTCALL, None),
            _Method(b"launch", ctypes.cast(library.tw_quick_launch, ctypes.c_void_p), _FASTCALL, None),
            _Method(b"call", ctypes.cast(library.tw_quick_call, ctypes.c_void_p), _FASTCALL, None),
        ]
        self._make = ctypes.pythonapi.PyCFunction_NewEx
        self._make.restype, self._make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._library = library

    def function(self, index: int, owner: object) -> Callable[..., Any]:
        return cast("Callable[..., Any]", self._make(ctypes.addressof(self._methods[index]), owner, None))


_lock = threading.Lock()
_loaded: _Library | None = None
_failed: list[settings.Settings] = []  # those under which it could not be had


def _build() -> _Library:
    from tilewright.arch import runnable_host_archs
    from tilewright.backends.base import Source
    from tilewright.build import build_source

    text = resources.files("tilewright.backends").joinpath("gpu/host/quick.cpp").read_text(encoding="utf-8")
    source = Source("tilewright_quick.cpp", text, "c++")
    return _Library(str(build_source(source, runnable_host_archs()[-1].name).path))


def library() -> _Library | None:
    """Built and loaded at the first question; None where that fails, which is said once."""
    global _loaded
    if _loaded is not None:
        return _loaded
    now = settings.current()
    with _lock:
        if _loaded is None and now not in _failed:
            try:
                _loaded = _build()
            except (TilewrightError, OSError, AttributeError) as error:
                _failed.append(now)
                events.emit(events.Warned("quick-calls", f"calls take some microseconds longer: {error}"))
        return _loaded


_tensors: tuple[Any, tuple[type[Any], ...]] | None = None  # the library `reader` reads tensors of, and their types


def reader(module: Any, kinds: Sequence[type[Any]]) -> tuple[Read, Callable[..., Any]] | None:
    """Two functions for the tensor types of a library, None where it has no exchange table.

    `read(*tensors)` gives (key, *addresses), or None for what needs a longer look: tensors of other types, that
    require a gradient, are lazily negated or have no strides.  `call(calls, tail, alpha, beta, *tensors)` finds
    the prepared call under the tensors' key and the tail in a dictionary and launches it on the library's current
    stream; the third tensor is the result, and missing where the call makes a new one.  It gives the result, or
    None where a longer way must be gone, or (status, prepared call) of a launch that failed.
    """
    global _tensors
    native = library()
    if native is None or (_tensors is not None and _tensors[0] is not module):
        return None
    capsule = getattr(kinds[0], "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    unwrap = ctypes.pythonapi.PyCapsule_GetPointer
    unwrap.restype, unwrap.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        table = unwrap(capsule, _EXCHANGE)
    except (ValueError, TypeError):
        return None
    if native.use_tensors(kinds[0], kinds[-1], table):
        return None
    _tensors = module, tuple(kinds)  # kept: the library compares their addresses
    return native.function(0, None), native.function(2, None)


class Prepared(int):
    """The address of a prepared call, as the C functions take it; keeps alive what the call needs."""

    keep: tuple[Any, ...]
    owner: Any  # whoever prepared it

    @property
    def launch(self) -> Callable[..., int]:
        """`launch(stream, workspace, *addresses, *scalars)`: 0, the kernel's status, or one of the constants above,
        and then nothing was launched."""
        native: _Library = self.keep[0]
        return cast("Callable[..., int]", native.function(1, self))


def prepare(
    kernel: Kernel,
    gpu: Gpu,
    args: ctypes.Structure,
    slots: Sequence[Slot],
    scalars: Sequence[int],
    *,
    out: int = -1,
    twin: int = -1,
    workspace_bytes: int = 0,
    allocate: tuple[Callable[..., Any], Any, Any, Any] | None = None,
) -> Prepared | None:
    """A launch of a kernel with everything but addresses, scalars and the stream.

    `args` is the template, `scalars` the offsets of its doubles.  The slot `out` may overlap no other, except
    that it may be exactly the slot `twin`; -1 where that needs no look.  With `workspace_bytes` it is not launched
    on a stream without such a workspace, or one that is captured.  `allocate` is a function with its arguments
    that makes a new result.
    """
    native = library()
    size = ctypes.sizeof(args)
    if native is None or size > MOST_ARGUMENT_BYTES or len(slots) > MOST_OPERANDS or len(scalars) > 2:
        return None
    current, expected, capturing = _questions(gpu)
    template = ctypes.create_string_buffer(bytes(args), size)
    call = _Call(
        launch=ctypes.cast(kernel.launch, ctypes.c_void_p),
        current=ctypes.cast(current, ctypes.c_void_p),
        capturing=ctypes.cast(capturing, ctypes.c_void_p) if workspace_bytes else None,
        expected=expected,
        args=ctypes.addressof(template),
        workspace_bytes=workspace_bytes,
        bytes=size,
        slots=len(slots),
        scalars=len(scalars),
        out=out,
        twin=twin,
    )
    if workspace_bytes:
        call.workspaces, call.clear_bytes = gpu._workspaces, kernel.clear_bytes
    if allocate is not None:
        call.allocate = allocate[0]
        for index, value in enumerate(allocate[1:]):
            call.allocate_args[index] = value
    for index, one in enumerate(slots):
        call.slot[index] = _Slot(size if one.offset is None else one.offset, *one.reach, one.grain)
    for index, offset in enumerate(scalars):
        call.scalar_offset[index] = offset
    made = Prepared(ctypes.addressof(call))
    made.keep = native, call, template, kernel, gpu
    return made


def _questions(gpu: Gpu) -> tuple[Any, int, Any]:
    """The runtime's function that tells what is current in a thread, its answer where `gpu` is, and the function
    that tells whether a stream is captured."""
    driver: Any = gpu.driver
    if hasattr(driver, "context"):
        functions = driver.library.cuCtxGetCurrent, driver.library.cuStreamIsCapturing
        return functions[0], driver.context(gpu.place.ordinal), functions[1]
    functions = tuple(getattr(driver.library, driver.prefix + name) for name in ("GetDevice", "StreamIsCapturing"))
    return functions[0], gpu.place.ordinal, functions[1]
