"""AMD devices through the HIP runtime library.

from tilewright.runtime import hip
device = hip.device()                 # or hip.all_devices()
with device.new_stream():
    ...
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.backends.driver import DeviceFacts
from tilewright.backends.hip import driver as library
from tilewright.runtime.gpu import Devices, Event, Gpu, GpuMemory, Stream

__all__ = ["Event", "Gpu", "GpuMemory", "Stream", "all_devices", "current_index", "device", "facts"]

_DEVICES: Devices[Gpu] = Devices(library, "hip", "HIP runtime", partial(Gpu, "hip"))


def owns_torch(torch: Any) -> bool:
    """Whether PyTorch means these devices when it says cuda."""
    return torch.version.hip is not None


def facts() -> tuple[DeviceFacts, ...]:
    """What each device says of itself."""
    return library.devices()


def device(index: int = 0) -> Gpu:
    """The device with this index; none is an error that says what is missing."""
    return _DEVICES.device(index)


def all_devices() -> tuple[Gpu, ...]:
    return _DEVICES.all()


def current_index() -> int:
    """The device HIP calls of this thread go to."""
    return device(0).current_index()
