"""The short way of a call made before: facts of tensors as one key, and a launch with no ctypes in between.

Both are C functions of a small library that is built once through the kernel store (its text is
`backends/gpu/host/quick.cpp`).  Where it cannot be built or loaded, or where a tensor's library does not
publish DLPack's exchange table, `launcher` and `reader` answer None and Python does the same, slower.
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

# What `launcher` answers beside 0 and the status of a kernel.
NOT_APART = -1  # an address is misaligned, or what is written overlaps what is read
ELSEWHERE = -2  # this thread's current device is another one
CAPTURED = -3  # the stream has no workspace yet, or a graph will keep its address

MOST_OPERANDS = 8
MOST_ARGUMENT_BYTES = 504  # of 512, the rest is for addresses nobody reads
_VERSION = 1
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
        *((name, ctypes.c_int64) for name in ("bytes", "slots", "scalars", "out", "twin")),
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


def reader(module: Any, kinds: Sequence[type[Any]]) -> Read | None:
    """`read(*tensors)` for the tensor types of a library: (key, *addresses), or None for what needs a longer look.

    Such are tensors of other types, that require a gradient, are lazily negated or have no strides.
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
    return native.function(0, None)


def launcher(
    kernel: Kernel,
    gpu: Gpu,
    args: ctypes.Structure,
    slots: Sequence[Slot],
    scalars: Sequence[int],
    *,
    out: int = -1,
    twin: int = -1,
    watch_capture: bool = False,
) -> Callable[..., int] | None:
    """`launch(stream, workspace, *addresses, *scalars)` of a kernel with everything else prepared.

    `args` is the template, `scalars` the offsets of its doubles.  The slot `out` may overlap no other, except
    that it may be exactly the slot `twin`; -1 where that needs no look.  With `watch_capture` a launch on a
    stream that is captured, or without a workspace, is not made.  The answer is 0, the kernel's status, or one
    of the constants above, and then nothing was launched.
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
        capturing=ctypes.cast(capturing, ctypes.c_void_p) if watch_capture else None,
        expected=expected,
        args=ctypes.addressof(template),
        bytes=size,
        slots=len(slots),
        scalars=len(scalars),
        out=out,
        twin=twin,
    )
    for index, one in enumerate(slots):
        call.slot[index] = _Slot(size if one.offset is None else one.offset, *one.reach, one.grain)
    for index, offset in enumerate(scalars):
        call.scalar_offset[index] = offset
    owner = _Handle(ctypes.addressof(call))
    owner.keep = (call, template, kernel, native)
    return cast("Callable[..., int]", native.function(1, owner))


class _Handle(int):
    """The address of a prepared call, which it keeps alive; an integer, as the C function takes it."""

    keep: object


def _questions(gpu: Gpu) -> tuple[Any, int, Any]:
    """The runtime's function that tells what is current in a thread, its answer where `gpu` is, and the function
    that tells whether a stream is captured."""
    driver: Any = gpu.driver
    if hasattr(driver, "context"):
        functions = driver.library.cuCtxGetCurrent, driver.library.cuStreamIsCapturing
        return functions[0], driver.context(gpu.place.ordinal), functions[1]
    functions = tuple(getattr(driver.library, driver.prefix + name) for name in ("GetDevice", "StreamIsCapturing"))
    return functions[0], gpu.place.ordinal, functions[1]
