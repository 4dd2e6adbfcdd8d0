"""AMD devices through the HIP runtime library.

from tilewright.runtime import hip
device = hip.device()                 # or hip.all_devices()
with device.new_stream():
    ...
"""

from __future__ import annotations

import threading
from typing import Any

from tilewright.backends.driver import DeviceFacts
from tilewright.backends.hip import driver as library
from tilewright.errors import DeviceError
from tilewright.runtime.gpu import Event, Gpu, GpuMemory, Stream

__all__ = ["Event", "Gpu", "GpuMemory", "Stream", "all_devices", "current_index", "device", "facts"]

_lock = threading.Lock()
_known: dict[tuple[str, int], Gpu] = {}


def owns_torch(torch: Any) -> bool:
    """Whether PyTorch means these devices when it says cuda."""
    return torch.version.hip is not None


def facts() -> tuple[DeviceFacts, ...]:
    """What each device says of itself."""
    return library.devices()


def device(index: int = 0) -> Gpu:
    """The device with this index; none is an error that says what is missing."""
    found = library.devices()
    if not 0 <= index < len(found):
        raise DeviceError(
            f"there is no hip:{index}; the HIP runtime sees {len(found)} device(s)",
            rule="device-index",
            value=index,
            remedy=f"use an index from 0 to {len(found) - 1}",
        )
    driver = library.driver()
    with _lock:
        known = _known.get((driver.path, index))
        if known is None or known.driver is not driver:
            known = _known[driver.path, index] = Gpu("hip", driver, found[index])
    return known


def all_devices() -> tuple[Gpu, ...]:
    return tuple(device(one.index) for one in library.devices())


def current_index() -> int:
    """The device HIP calls of this thread go to."""
    return device(0).current_index()
