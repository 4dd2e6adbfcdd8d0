"""What the runtime asks of whatever runs kernels: memory, order, time.  Host, HIP and CUDA answer alike.

A place is a kind of device (the name of its backend) and its index.  `device(place)` is the object behind it.  A
backend says which module is behind its devices, and what DLPack and PyTorch call them (`Backend.device`).  Where
PyTorch has one word for devices of two backends, their modules have a function `owns_torch(torch)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.dataclass import NamedTuple
from tilewright.digests import sha256
from tilewright.errors import DeviceError, InternalError, ProblemError, UnknownNameError

if TYPE_CHECKING:
    from tilewright.runtime.loader import Kernel
    from tilewright.runtime.timing import Stopwatch


class Place(NamedTuple):
    """Where memory is.  Ordinal ANY: every device of the kind reads it (host memory pinned for the kind)."""

    kind: str
    ordinal: int

    def __str__(self) -> str:
        return "host memory" if self.kind == HOST_KIND else f"{self.kind}:{self.ordinal}"


ANY = -1
HOST_KIND = "cpu"  # of memory every CPU reads
HOST = Place(HOST_KIND, 0)


class Memory(Protocol):
    """Memory of a device; it is given back when the object dies, or by `free`."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def free(self) -> None: ...


class Device(Protocol):
    """One device.  Copies return when they are done; kernels and fills are ordered on the current stream."""

    @property
    def place(self) -> Place: ...

    @property
    def name(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What measurements on two devices must share to be comparable, as plain data."""

    @property
    def cache_bytes(self) -> int:
        """The largest cache a kernel's operands can stay in."""

    def demand_arch(self, arch: str) -> None:
        """Raise where kernels of an arch do not run on this device."""

    def allocate(self, nbytes: int) -> Memory: ...

    def write(self, address: int, source: int, nbytes: int) -> None:
        """Copy host memory at `source` into device memory."""

    def read(self, target: int, address: int, nbytes: int) -> None:
        """Copy device memory into host memory at `target`."""

    def fill(self, address: int, byte: int, nbytes: int) -> None: ...

    def stream(self) -> int:
        """The stream work goes to now: what `launch` takes."""

    def synchronize(self) -> None: ...

    def scratch(self, nbytes: int, clear_bytes: int = 0) -> AbstractContextManager[tuple[int, int]]:
        """An address of at least `nbytes` that what the body queues may use, and the stream it goes to.

        Before the address are `clear_bytes` that kernels find zero and leave zero.  The device is the current one.
        """

    def copy_rows(self, target: int, target_pitch: int, source: int, pitch: int, width: int, rows: int) -> None:
        """Rows of `width` bytes from memory of this device to other, in the order of the current stream."""

    def load(self, kernel: Kernel) -> None:
        """What the first launch of a kernel here would do beside launching it."""

    def launch_error(self, kernel: Kernel, status: int, args: int) -> Exception:
        """What is to be said about a launch that answered other than 0; `args` is the address of its arguments."""

    def stopwatch(self) -> Stopwatch: ...


@lru_cache(maxsize=16)
def module_of(kind: str) -> Any:
    """The module behind the devices of a backend."""
    from tilewright.backends.base import backend

    try:
        return import_module(backend(kind).device.runtime)
    except (ModuleNotFoundError, UnknownNameError) as error:
        raise InternalError(f"devices of kind {kind!r} have no runtime", rule="device-kind", value=kind) from error


@lru_cache(maxsize=1)
def dlpack_types() -> dict[int, tuple[str, bool]]:
    """DLPack's device types: whose memory each is, and whether it is host memory pinned for that kind."""
    from tilewright.backends.base import all_backends

    types: dict[int, tuple[str, bool]] = {}
    for kind, backend in all_backends().items():
        types |= dict.fromkeys((backend.device.dlpack, *backend.device.dlpack_more), (kind, False))
        types |= dict.fromkeys(backend.device.dlpack_pinned, (kind, True))
    return types


def dlpack_type(place: Place) -> int:
    from tilewright.backends.base import backend

    return backend(place.kind).device.dlpack


def kind_of_torch(torch: Any, device_type: str) -> str:
    """The backend whose devices PyTorch calls so; PyTorch's own word where there is none."""
    from tilewright.backends.base import all_backends

    if device_type == HOST_KIND:
        return HOST_KIND
    for kind, backend in all_backends().items():
        owns = getattr(module_of(kind), "owns_torch", None) if backend.device.torch == device_type else None
        if backend.device.torch == device_type and (owns is None or owns(torch)):
            return kind
    return device_type


def torch_device(place: Place) -> str:
    """What PyTorch calls a place."""
    from tilewright.backends.base import backend

    if place.kind == HOST_KIND:
        return HOST_KIND
    return f"{backend(place.kind).device.torch}:{place.ordinal}"


def device(place: Place) -> Device:
    """The device at a place; one that is not there is an error that says what is missing."""
    known: Device = module_of(place.kind).device(0 if place.ordinal == ANY else place.ordinal)
    return known


def identified(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What a device says of itself, with the fingerprint it is known by."""
    return {**identity, "fingerprint": _fingerprint(tuple(identity.items()))}


@lru_cache(maxsize=64)
def _fingerprint(identity: tuple[tuple[str, Any], ...]) -> str:
    text = json.dumps(dict(identity), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def device_of(arch: str, index: int | None = None) -> Device:
    """The device kernels of an arch run on: the one at `index`, else the current one of its kind, else the
    first that runs the arch."""
    from tilewright.arch import arch as facts

    kind = facts(arch).backend
    module = module_of(kind)
    if index is not None:
        device: Device = module.device(index)
        device.demand_arch(arch)
        return device
    candidates: Sequence[Device] = module.all_devices()
    for candidate in candidates:
        if runs(candidate, arch):
            return candidate
    candidates[0].demand_arch(arch)
    return candidates[0]


def runs(device: Device, arch: str) -> bool:
    try:
        device.demand_arch(arch)
    except DeviceError:
        return False
    return True


def kind_of(arch: str) -> str:
    from tilewright.arch import arch as facts

    return facts(arch).backend


def wrong_place(what: str, place: Place, kind: str) -> DeviceError:
    """An array is not where kernels of a kind read it; where there is no such device, that is the error."""
    from tilewright.backends.base import backend_names

    if place.kind == "meta":
        return DeviceError(
            f"{what} is on PyTorch's meta device, where tensors have a shape and no data",
            rule="array-device",
            value=tuple(place),
            remedy=f"create {what} on a real device: what it should hold is nowhere",
        )
    if kind != HOST_KIND:
        module_of(kind).all_devices()
        remedy = f"move {what} to the device (PyTorch: `.cuda()`; NumPy: `tilewright.to_device({what}, target)`)"
        if place != HOST:
            remedy = f"move {what} to a {kind} device, or name a target of {place.kind}"
        return DeviceError(
            f"{what} is in {place}, and kernels of the target read memory of a {kind} device",
            rule="array-device",
            value=tuple(place),
            remedy=remedy,
        )
    return DeviceError(
        f"{what} lives on device {place}, and host kernels read host memory",
        rule="array-device",
        value=tuple(place),
        remedy=f"move {what} to the CPU first (for example `.cpu()`)"
        + (f", or name the target {place.kind!r}" if place.kind in backend_names() else ""),
    )


def common_place(operands: Sequence[tuple[str, Place]]) -> Place:
    """The one place of all operands, or an error that names two of them."""
    fixed = [(what, place) for what, place in operands if place.ordinal != ANY]
    if not fixed:
        kind = operands[0][1].kind
        index: int = module_of(kind).current_index()
        return Place(kind, index)
    first, place = fixed[0]
    for what, other in fixed[1:]:
        if other != place:
            raise ProblemError(
                f"{first} is on {place} and {what} on {other}",
                rule="operand-places",
                value=(str(place), str(other)),
                remedy=f"move them to one device, for example {what} to {place}",
            )
    return place
