"""A device runtime library behind ctypes: calls checked, errors with the names the vendor gave them.

HIP and CUDA spell the same calls with another prefix (hipMalloc, cudaMalloc), so one class serves
both; how the library is found and what a device says of itself is in each backend's folder.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.arch import all_archs
from tilewright.dataclass import dataclass
from tilewright.errors import DeviceError, LoadError, TilewrightError

_INT, _UINT, _SIZE, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_float, ctypes.c_void_p

# The calls the runtime makes, without their prefix, and what they take.
SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "GetDeviceCount": (_POINTER,),
    "GetDevice": (_POINTER,),
    "SetDevice": (_INT,),
    "Malloc": (_POINTER, _SIZE),
    "Free": (_POINTER,),
    "MemGetInfo": (_POINTER, _POINTER),
    "MemcpyAsync": (_POINTER, _POINTER, _SIZE, _INT, _POINTER),
    "Memcpy2DAsync": (_POINTER, _SIZE, _POINTER, _SIZE, _SIZE, _SIZE, _INT, _POINTER),
    "MemsetAsync": (_POINTER, _INT, _SIZE, _POINTER),
    "DeviceSynchronize": (),
    "StreamCreateWithFlags": (_POINTER, _UINT),
    "StreamDestroy": (_POINTER,),
    "StreamSynchronize": (_POINTER,),
    "StreamWaitEvent": (_POINTER, _POINTER, _UINT),
    "StreamIsCapturing": (_POINTER, _POINTER),
    "EventCreateWithFlags": (_POINTER, _UINT),
    "EventDestroy": (_POINTER,),
    "EventRecord": (_POINTER, _POINTER),
    "EventSynchronize": (_POINTER,),
    "EventElapsedTime": (_POINTER, _POINTER, _POINTER),
    "GetLastError": (),
    "RuntimeGetVersion": (_POINTER,),
}

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, ANY_TO_ANY = 1, 2, 3, 4

# Codes both vendors share.
OUT_OF_MEMORY = 2
NO_DEVICE = frozenset((3, 35, 100))  # not initialised, driver too old, no device
# After one of these every later call of the process answers the same.
STICKY = frozenset((214, 700, 702, 709, 710, 719))


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself."""

    index: int
    name: str
    arch: str  # gfx942, sm_90: the arch's name without feature suffixes
    memory_bytes: int
    compute_units: int
    warp_size: int
    clock_hz: int
    cache_bytes: int  # the largest cache the runtime reports
    bus: str = ""
    driver: str = ""  # the version line of what runs the device: kernels of one driver are not timed for another


class Driver:
    """A loaded runtime library.  `driver("Malloc", ...)` calls it and raises where it answers an error."""

    def __init__(self, prefix: str, library: ctypes.CDLL, path: str, *, blocking_variable: str) -> None:
        self.prefix = prefix
        self.path = path
        self._blocking = blocking_variable
        self._functions: dict[str, Any] = {}
        try:
            for name, kinds in SIGNATURES.items():
                self._functions[name] = _declared(library, prefix + name, ctypes.c_int, kinds)
            self._name = _declared(library, f"{prefix}GetErrorName", ctypes.c_char_p, (_INT,))
            self._text = _declared(library, f"{prefix}GetErrorString", ctypes.c_char_p, (_INT,))
        except AttributeError as error:
            raise LoadError(
                f"{path} is not a {prefix.upper()} runtime this version can use: {error}",
                rule="device-library",
                value=path,
                remedy="install the vendor's runtime of version 6 or later, or name it in the settings",
            ) from error
        self.library = library

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self._functions[name](*arguments)
        if status:
            raise self.error(name, status)

    def status(self, name: str, *arguments: Any) -> int:
        """The same call, its answer for the caller to judge."""
        return int(self._functions[name](*arguments))

    def error_name(self, status: int) -> str:
        return (self._name(status) or b"").decode("utf-8", "replace") or f"error {status}"

    def describe(self, status: int) -> str:
        text = (self._text(status) or b"").decode("utf-8", "replace")
        return f"{self.error_name(status)} ({status}){f': {text}' if text else ''}"

    def take_last_error(self) -> int:
        """The error the library still holds, and forget it: it must not be blamed on someone else's next call."""
        return int(self._functions["GetLastError"]())

    def error(self, name: str, status: int, what: str = "") -> DeviceError:
        """The error of a call that answered `status`; `what` says what was being done, where that helps."""
        self.take_last_error()
        message = f"{what or self.prefix + name} failed: {self.describe(status)}"
        if status in STICKY:
            return DeviceError(
                f"{message}; an earlier asynchronous launch may have caused it, and the device answers nothing else "
                "in this process",
                rule="device-lost",
                value=self.error_name(status),
                remedy=f"start the process again; with {self._blocking} the call that fails is the one at fault",
            )
        return DeviceError(
            message,
            rule="device-call",
            value=self.error_name(status),
            remedy="run `tilewright doctor`; the name of the error is the vendor's",
        )


def in_folders(folders: Iterable[Path], names: Sequence[str]) -> Iterator[str]:
    """The files of these names there are, folder by folder."""
    for folder in folders:
        yield from (str(folder / name) for name in names if (folder / name).exists())


def load_first(paths: Iterable[str], missing: Callable[[str], DeviceError]) -> tuple[ctypes.CDLL, str]:
    """The first library that loads, open to kernel libraries, which find their calls in it.

    `missing` makes the error, of what the loader said against the first file there is, or of nothing.
    """
    refused = ""
    for path in paths:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), path
        except OSError as error:
            if os.sep in path:  # else the system just does not know the name
                refused = refused or str(error)
    raise missing(refused)


def _declared(library: ctypes.CDLL, symbol: str, result: Any, kinds: tuple[Any, ...]) -> Any:
    function = getattr(library, symbol)
    function.restype, function.argtypes = result, kinds
    return function


def driver_line(version: str, module: Path) -> str:
    """The version the library says, with that of the kernel module where the system has it."""
    try:
        text = module.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return version
    first = " ".join((text.splitlines() or [""])[0].split())
    return f"{version}; {first}" if first else version


def no_device(library: str, reason: str, why: str, remedy: str) -> DeviceError:
    """The vendor's library is here and sees nothing."""
    return DeviceError(
        f"the {library} sees no device ({reason}; {why})",
        rule="no-device",
        value=0,
        remedy=f"{remedy}; kernels can be generated, built and inspected here without one",
    )


def runnable_archs(devices: Callable[[], Sequence[DeviceFacts]]) -> list[str]:
    """Archs whose kernels run on a device of this machine, those of device 0 first."""
    try:
        facts = devices()
    except TilewrightError:
        return []
    known = all_archs()
    names: dict[str, None] = {}
    for device in facts:
        if device.arch in known:
            names.update(dict.fromkeys((device.arch, *known[device.arch].includes)))
    return list(names)


def why_nothing_runs(devices: Callable[[], Sequence[DeviceFacts]]) -> str:
    """Empty when a device of a known arch is here, else what is missing."""
    try:
        facts = devices()
    except TilewrightError as error:
        return f"{error.message}; {error.remedy}"
    if runnable_archs(devices):
        return ""
    return f"this machine has {', '.join(sorted({device.arch for device in facts}))}, of which there are no arch facts"
