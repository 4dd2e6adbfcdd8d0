"""What the runtime asks of whatever runs kernels: memory, order, time.  Host, HIP and CUDA answer alike.

A place is a kind of device (the name of its backend) and its index.  `device(place)` is the object
behind it; the module of a kind is `tilewright.runtime.<kind>` (`host` for the CPU) with a function
`device(index)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tilewright.errors import DeviceError, InternalError, ProblemError

if TYPE_CHECKING:
    from tilewright.runtime.loader import Kernel
    from tilewright.runtime.timing import Stopwatch


class Place(NamedTuple):
    """Where memory is.  Ordinal ANY: every device of the kind reads it (host memory pinned for the kind)."""

    kind: str
    ordinal: int

    def __str__(self) -> str:
        return "host memory" if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


ANY = -1
HOST = Place("cpu", 0)

Launch = Callable[[int, Any, Any], int]  # address of the arguments, workspace, stream


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

    def launcher(self, kernel: Kernel, workspace_bytes: int) -> Launch:
        """The kernel's launch on this device's current stream with its workspace; errors are raised."""

    def stopwatch(self) -> Stopwatch: ...


@lru_cache(maxsize=16)
def _module(kind: str) -> Any:
    name = "host" if kind == "cpu" else kind
    try:
        return import_module(f"tilewright.runtime.{name}")
    except ModuleNotFoundError as error:
        raise InternalError(f"devices of kind {kind!r} have no runtime", rule="device-kind", value=kind) from error


def device(place: Place) -> Device:
    """The device at a place; one that is not there is an error that says what is missing."""
    found: Device = _module(place.kind).device(0 if place.ordinal == ANY else place.ordinal)
    return found


def device_of(arch: str, index: int | None = None) -> Device:
    """The device kernels of an arch run on: the one at `index`, else the current one of its kind, else the
    first that runs the arch."""
    from tilewright.arch import arch as facts

    kind = facts(arch).backend
    module = _module(kind)
    if index is not None:
        found: Device = module.device(index)
        found.demand_arch(arch)
        return found
    candidates: Sequence[Device] = module.all_devices()
    for one in candidates:
        if runs(one, arch):
            return one
    candidates[0].demand_arch(arch)
    return candidates[0]


def runs(one: Device, arch: str) -> bool:
    try:
        one.demand_arch(arch)
    except DeviceError:
        return False
    return True


def kind_of(arch: str) -> str:
    from tilewright.arch import arch as facts

    return facts(arch).backend


def wrong_place(what: str, place: Place, kind: str) -> DeviceError:
    """An array is not where kernels of a kind read it; where there is no such device, that is the error."""
    if kind != "cpu":
        _module(kind).all_devices()
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
        remedy=f"move {what} to the CPU first (for example `.cpu()`), or name a target of that device",
    )


def common_place(operands: Sequence[tuple[str, Place]]) -> Place:
    """The one place of all operands, or an error that names two of them."""
    fixed = [(what, place) for what, place in operands if place.ordinal != ANY]
    if not fixed:
        kind = operands[0][1].kind
        index: int = _module(kind).current_index()
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
