"""The HIP runtime library: where it is, which devices it sees, and why it sees none."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from tilewright import settings
from tilewright.backends.driver import (
    NO_DEVICE,
    DeviceFacts,
    Driver,
    driver_line,
    in_folders,
    load_first,
    no_device,
    runnable_archs,
    why_nothing_runs,
)
from tilewright.errors import DeviceError

# Versions of the library by the name the loader knows, newest first.  The properties struct below is that of
# version 6 and later.
NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")
PLACES = ("/opt/rocm/lib", "/opt/rocm/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")
DEVICE_FILE = Path("/dev/kfd")
MODULE_FILE = Path("/sys/module/amdgpu/version")

# hipDeviceProp_tR0600: its size, and the fields we read by offset.  Compared with the vendor's header by a test.
PROPERTIES_BYTES = 1472
PROPERTY_OFFSETS = {
    "name": 0,
    "totalGlobalMem": 288,
    "warpSize": 308,
    "clockRate": 348,
    "multiProcessorCount": 388,
    "pciBusID": 584,
    "pciDeviceID": 588,
    "pciDomainID": 592,
    "l2CacheSize": 616,
    "gcnArchName": 1160,
}

_lock = threading.Lock()
_drivers: dict[str, Driver] = {}
_devices: dict[str, tuple[DeviceFacts, ...]] = {}


def _loaded_already() -> Iterator[str]:
    """PyTorch brings its own copy of the library; two in one process would not know each other's memory."""
    for name in ("libamdhip64.so", *NAMES):
        try:
            ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        yield name


def _candidates() -> Iterator[str]:
    yield from _loaded_already()
    yield from NAMES
    rocm = settings.current().rocm_path
    folders = [Path(rocm) / name for name in ("lib", "lib64", "usr/lib/x86_64-linux-gnu")] if rocm else []
    folders += [Path(place) for place in PLACES]
    # /opt/rocm-7.1.0 and its like, the newest first.
    folders += sorted((path / "lib" for path in Path("/opt").glob("rocm-*")), reverse=True)
    yield from in_folders(folders, NAMES)


def _open() -> Driver:
    chosen = settings.current().hip_library
    library, path = load_first([chosen] if chosen else _candidates(), lambda reason: _missing(chosen, reason))
    return Driver("hip", library, path, blocking_variable="AMD_SERIALIZE_KERNEL=3 in the environment")


def _missing(chosen: str, reason: str) -> DeviceError:
    nowhere = f"the HIP runtime library ({NAMES[-1]}) was not found by the system loader or in {PLACES[0]}"
    return DeviceError(
        f"the HIP runtime cannot be loaded: {reason}" if reason else nowhere,
        rule="device-library",
        value=chosen or NAMES[-1],
        remedy="install ROCm's HIP runtime (package hip-runtime-amd, or libamdhip64 of your distribution), "
        "or set TILEWRIGHT_HIP_LIBRARY to the library",
    )


def driver() -> Driver:
    """The library under the settings in force, loaded once."""
    key = settings.current().hip_library
    known = _drivers.get(key)
    if known is None:
        with _lock:
            known = _drivers.get(key) or _drivers.setdefault(key, _open())
    return known


def _facts(library: Driver, index: int) -> DeviceFacts:
    raw = ctypes.create_string_buffer(PROPERTIES_BYTES + 1024)  # later versions may write more
    read = getattr(library.library, "hipGetDevicePropertiesR0600", None)
    if read is None:
        raise DeviceError(
            f"{library.path} is a HIP runtime older than version 6",
            rule="device-library",
            value=library.path,
            remedy="install ROCm 6 or later",
        )
    read.restype, read.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)
    status = read(raw, index)
    if status:
        raise library.error("GetDeviceProperties", status)
    properties = raw.raw

    def number(field: str) -> int:
        return int.from_bytes(properties[PROPERTY_OFFSETS[field] :][:4], "little", signed=True)

    def text(field: str) -> str:
        return properties[PROPERTY_OFFSETS[field] :][:256].split(b"\0", 1)[0].decode("utf-8", "replace")

    memory = int.from_bytes(properties[PROPERTY_OFFSETS["totalGlobalMem"] :][:8], "little")
    bus = f"{number('pciDomainID'):04x}:{number('pciBusID'):02x}:{number('pciDeviceID'):02x}"
    return DeviceFacts(
        index=index,
        name=text("name") or "AMD GPU",
        arch=text("gcnArchName").partition(":")[0],  # gfx942:sramecc+:xnack-
        memory_bytes=memory,
        compute_units=number("multiProcessorCount"),
        warp_size=number("warpSize"),
        clock_hz=number("clockRate") * 1000,
        cache_bytes=number("l2CacheSize"),
        bus=bus,
        driver=driver_line(_version(library), MODULE_FILE),
    )


def _version(library: Driver) -> str:
    number = ctypes.c_int()
    library("RuntimeGetVersion", ctypes.byref(number))
    major, rest = divmod(number.value, 10_000_000)
    return f"HIP {major}.{rest // 100_000}.{rest % 100_000}"


def devices() -> tuple[DeviceFacts, ...]:
    """Every device the library sees; none is an error that says what is missing."""
    key = settings.current().hip_library
    known = _devices.get(key)
    if known is not None:
        return known
    library = driver()
    count = ctypes.c_int(0)
    status = library.status("GetDeviceCount", ctypes.byref(count))
    if status and status not in NO_DEVICE:
        raise library.error("GetDeviceCount", status)
    if status or count.value == 0:
        library.take_last_error()
        raise _no_device(library.describe(status) if status else "it counts 0 devices")
    facts = tuple(_facts(library, index) for index in range(count.value))
    _devices[key] = facts
    return facts


def _no_device(reason: str) -> DeviceError:
    if not DEVICE_FILE.exists():
        why, remedy = f"{DEVICE_FILE} is missing", "load the amdgpu kernel driver, or use a machine with an AMD GPU"
    elif not os.access(DEVICE_FILE, os.R_OK | os.W_OK):
        why, remedy = f"this user may not open {DEVICE_FILE}", "add the user to the groups `render` and `video`"
    else:
        why, remedy = "the driver is there", "check `rocminfo`; HIP_VISIBLE_DEVICES may hide the devices"
    return no_device("HIP runtime", reason, why, remedy)


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
