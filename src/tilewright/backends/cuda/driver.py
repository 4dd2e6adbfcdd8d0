"""The CUDA driver library: where it is, which devices it sees, and why it sees none.

The driver's calls take the names the generic runtime uses (`Malloc`, `EventRecord`, ...); each device is
used through its primary context, the one PyTorch and CUDA's own runtime use.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.arch import all_archs
from tilewright.backends.driver import (
    NO_DEVICE,
    STICKY,
    DeviceFacts,
    Driver,
    driver_line,
    in_folders,
    load_first,
    no_device,
    runnable_archs,
    why_nothing_runs,
)
from tilewright.errors import DeviceError, LoadError

NAMES = ("libcuda.so.1", "libcuda.so")
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64")
DEVICE_FILE = Path("/dev/nvidiactl")
MODULE_FILE = Path("/proc/driver/nvidia/version")
OLDEST = 12030  # as cuDriverGetVersion says it: tensor maps and cluster launches

_P, _I, _U, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
# The calls that only have another name: generic name, the driver's, what they take.
_SAME: dict[str, tuple[str, tuple[Any, ...]]] = {
    "GetDeviceCount": ("cuDeviceGetCount", (_P,)),
    "Malloc": ("cuMemAlloc_v2", (_P, _S)),
    "Free": ("cuMemFree_v2", (_P,)),
    "MemGetInfo": ("cuMemGetInfo_v2", (_P, _P)),
    "DeviceSynchronize": ("cuCtxSynchronize", ()),
    "StreamCreateWithFlags": ("cuStreamCreate", (_P, _U)),
    "StreamDestroy": ("cuStreamDestroy_v2", (_P,)),
    "StreamSynchronize": ("cuStreamSynchronize", (_P,)),
    "StreamWaitEvent": ("cuStreamWaitEvent", (_P, _P, _U)),
    "StreamIsCapturing": ("cuStreamIsCapturing", (_P, _P)),
    "EventCreateWithFlags": ("cuEventCreate", (_P, _U)),
    "EventDestroy": ("cuEventDestroy_v2", (_P,)),
    "EventRecord": ("cuEventRecord", (_P, _P)),
    "EventSynchronize": ("cuEventSynchronize", (_P,)),
    "EventElapsedTime": ("cuEventElapsedTime", (_P, _P, _P)),
    "RuntimeGetVersion": ("cuDriverGetVersion", (_P,)),
    "CaptureMode": ("cuThreadExchangeStreamCaptureMode", (_P,)),
    "CtxGetCurrent": ("cuCtxGetCurrent", (_P,)),
}
_MORE: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,),
    "cuCtxSetCurrent": (_P,),
    "cuCtxGetDevice": (_P,),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuMemcpyAsync": (_P, _P, _S, _P),
    "cuMemcpy2DAsync_v2": (_P, _P),
    "cuMemsetD8Async": (_P, ctypes.c_ubyte, _S, _P),
    "cuDeviceGetName": (_P, _I, _I),
    "cuDeviceTotalMem_v2": (_P, _I),
    "cuDeviceGetAttribute": (_P, _I, _I),
    "cuGetErrorName": (_I, _P),
    "cuGetErrorString": (_I, _P),
}
_ATTRIBUTES = {
    "warp": 10,
    "clock": 13,
    "units": 16,
    "bus": 33,
    "slot": 34,
    "cache": 38,
    "domain": 50,
    "major": 75,
    "minor": 76,
}
_IMAGE = frozenset((200, 209, 218, 222))  # the driver cannot load the code it was given
_STICKY = STICKY | {714, 715, 716, 717, 718}

_lock = threading.Lock()
_drivers: dict[str, CudaDriver] = {}
_devices: dict[str, tuple[DeviceFacts, ...]] = {}


class _Side(ctypes.Structure):
    """One side of CUDA_MEMCPY2D: where rows are and how far apart."""

    _fields_ = (
        ("x", _S), ("y", _S), ("memory", _I), ("host", _P), ("address", _P), ("array", _P), ("pitch", _S),
    )  # fmt: skip


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (("source", _Side), ("target", _Side), ("width", _S), ("height", _S))


_UNIFIED = 4  # the driver finds out which memory an address is of


class CudaDriver(Driver):
    """libcuda under the names of the generic runtime."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.prefix = "cuda"
        self.path = path
        self.library = library
        self._blocking = "CUDA_LAUNCH_BLOCKING=1 in the environment"
        self._contexts: dict[int, int] = {}
        try:
            raw = {name: _declared(library, name, kinds) for name, kinds in _MORE.items()}
            self._functions: dict[str, Any] = {
                name: _declared(library, symbol, kinds) for name, (symbol, kinds) in _SAME.items()
            }
        except AttributeError as error:
            raise LoadError(
                f"{path} is not a CUDA driver this version can use: {error}",
                rule="device-library",
                value=path,
                remedy="install NVIDIA's driver of CUDA 12.3 or later, or name it in TILEWRIGHT_CUDA_LIBRARY",
            ) from error
        self.raw: dict[str, Callable[..., int]] = raw
        self._functions |= {
            "GetDevice": self._get_device,
            "SetDevice": self._set_device,
            "MemcpyAsync": lambda to, source, size, _way, stream: raw["cuMemcpyAsync"](to, source, size, stream),
            "Memcpy2DAsync": self._copy_2d,
            "MemsetAsync": raw["cuMemsetD8Async"],
            "GetLastError": lambda: 0,  # the driver keeps no error for later
        }
        self._name = self._words("cuGetErrorName")
        self._text = self._words("cuGetErrorString")

    def _words(self, call: str) -> Callable[[int], bytes]:
        def words(status: int) -> bytes:
            text = ctypes.c_char_p()
            self.raw[call](status, ctypes.byref(text))
            return text.value or b""

        return words

    def context(self, index: int) -> int:
        """The primary context of a device, kept from the first question on; raises where there is none."""
        known = self._contexts.get(index)
        if known is None:
            context = ctypes.c_void_p()
            status = self.raw["cuDevicePrimaryCtxRetain"](ctypes.byref(context), index)
            if status:
                raise self.error("DevicePrimaryCtxRetain", status)
            known = self._contexts[index] = context.value or 0
        return known

    def _set_device(self, index: int) -> int:
        return self.raw["cuCtxSetCurrent"](self.context(index))

    def _copy_2d(
        self, to: int, to_pitch: int, source: int, pitch: int, width: int, height: int, _way: int, stream: int
    ) -> int:
        side = _Side(memory=_UNIFIED, address=source, pitch=pitch)
        copy = _Copy2D(side, _Side(memory=_UNIFIED, address=to, pitch=to_pitch), width, height)
        return self.raw["cuMemcpy2DAsync_v2"](ctypes.byref(copy), stream)

    def _get_device(self, answer: Any) -> int:
        now = ctypes.c_void_p()
        status = int(self._functions["CtxGetCurrent"](ctypes.byref(now)))
        if status == 0 and not now.value:
            status = self._set_device(0)  # as CUDA's own runtime does for a thread that never chose
        return status or self.raw["cuCtxGetDevice"](answer)

    def error(self, name: str, status: int, what: str = "") -> DeviceError:
        if status in _IMAGE:
            return DeviceError(
                f"{what or name} failed: {self.describe(status)}; the driver cannot load the kernel's code",
                rule="device-image",
                value=self.error_name(status),
                remedy="update NVIDIA's driver, or compile with an nvcc no newer than it (TILEWRIGHT_NVCC)",
            )
        if status in _STICKY and status not in STICKY:
            status_name = self.error_name(status)
            return DeviceError(
                f"{what or name} failed: {self.describe(status)}; the device answers nothing else in this process",
                rule="device-lost",
                value=status_name,
                remedy=f"start the process again; with {self._blocking} the call that fails is the one at fault",
            )
        return super().error(name, status, what)


def _declared(library: ctypes.CDLL, symbol: str, kinds: tuple[Any, ...]) -> Callable[..., int]:
    function = getattr(library, symbol)
    function.restype, function.argtypes = ctypes.c_int, kinds
    return function  # type: ignore[no-any-return]


def _candidates() -> Iterator[str]:
    yield from NAMES
    yield from in_folders(map(Path, PLACES), NAMES)


def _open() -> CudaDriver:
    chosen = settings.current().cuda_library
    library, path = load_first([chosen] if chosen else _candidates(), lambda reason: _missing(chosen, reason))
    return CudaDriver(library, path)


def _missing(chosen: str, reason: str) -> DeviceError:
    nowhere = f"the CUDA driver library ({NAMES[0]}) was not found by the system loader"
    return DeviceError(
        f"the CUDA driver cannot be loaded: {reason}" if reason else nowhere,
        rule="device-library",
        value=chosen or NAMES[0],
        remedy="install NVIDIA's driver (in a container, start it with the GPU: --gpus all), "
        "or set TILEWRIGHT_CUDA_LIBRARY to the library",
    )


def driver() -> CudaDriver:
    """The library under the settings in force, loaded once."""
    key = settings.current().cuda_library
    known = _drivers.get(key)
    if known is None:
        with _lock:
            known = _drivers.get(key) or _drivers.setdefault(key, _open())
    return known


def arch_of(major: int, minor: int, units: int = 0) -> str:
    """The arch a device of this compute capability is, or whose kernels it runs at least.

    Of several of the same capability the one with as many multiprocessors.  A device of none runs the code of the
    newest arch before it whose kernels carry PTX.
    """
    own, older = (major, minor), []
    exact = [each for each in all_archs().values() if each.backend == "cuda" and each.capability == own]
    if exact:
        return min(exact, key=lambda each: each.compute_units != units).name
    for each in all_archs().values():
        if each.backend == "cuda" and each.capability and each.capability < own and "ptx" in each.features:
            older.append((each.capability, each.name))
    return max(older)[1] if older else f"sm_{major}{minor}"


def _facts(library: CudaDriver, index: int, version: int) -> DeviceFacts:
    def query(call: str, *arguments: Any) -> None:
        status = library.raw[call](*arguments)
        if status:
            raise library.error(call.removeprefix("cu"), status)

    def number(name: str) -> int:
        value = ctypes.c_int()
        query("cuDeviceGetAttribute", ctypes.byref(value), _ATTRIBUTES[name], index)
        return value.value

    name = ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    query("cuDeviceGetName", name, 256, index)
    query("cuDeviceTotalMem_v2", ctypes.byref(memory), index)
    return DeviceFacts(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        arch=arch_of(number("major"), number("minor"), number("units")),
        memory_bytes=memory.value,
        compute_units=number("units"),
        warp_size=number("warp"),
        clock_hz=number("clock") * 1000,
        cache_bytes=number("cache"),
        bus=f"{number('domain'):04x}:{number('bus'):02x}:{number('slot'):02x}",
        driver=driver_line(f"CUDA {_version(version)}", MODULE_FILE),
    )


def devices() -> tuple[DeviceFacts, ...]:
    """Every device the driver sees; none is an error that says what is missing."""
    key = settings.current().cuda_library
    known = _devices.get(key)
    if known is not None:
        return known
    library = driver()
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    status = library.raw["cuInit"](0) or library.status("GetDeviceCount", ctypes.byref(count))
    if status and status not in NO_DEVICE | {34}:  # 34: the toolkit's stub in place of the driver
        raise library.error("Init", status)
    if status or count.value == 0:
        raise _no_device(library.describe(status) if status else "it counts 0 devices")
    library("RuntimeGetVersion", ctypes.byref(version))
    if version.value < OLDEST:
        raise DeviceError(
            f"NVIDIA's driver is of CUDA {_version(version.value)}, and kernels need {_version(OLDEST)} or later",
            rule="driver-old",
            value=_version(version.value),
            remedy="update the driver",
        )
    facts = tuple(_facts(library, index, version.value) for index in range(count.value))
    _devices[key] = facts
    return facts


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _no_device(reason: str) -> DeviceError:
    if not DEVICE_FILE.exists():
        why, remedy = f"{DEVICE_FILE} is missing", "load NVIDIA's kernel driver, or use a machine with an NVIDIA GPU"
    else:
        why, remedy = "the kernel driver is there", "check `nvidia-smi`; CUDA_VISIBLE_DEVICES may hide the devices"
    return no_device("CUDA driver", reason, why, remedy)


def forget() -> None:
    """Look for library and devices anew at the next question."""
    with _lock:
        _drivers.clear()
        _devices.clear()


def available_archs() -> list[str]:
    """Archs whose kernels run on a device of this machine, those of device 0 first."""
    return runnable_archs(devices)


def why_unavailable() -> str:
    """Empty when a device of a known arch is here, else what is missing."""
    return why_nothing_runs(devices)
