"""A GPU over its runtime library: memory, streams, events, workspaces and launches, for HIP and CUDA alike."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from tilewright import events, notices
from tilewright.arch import all_archs
from tilewright.backends.driver import ANY_TO_ANY, DEVICE_TO_HOST, HOST_TO_DEVICE, OUT_OF_MEMORY, DeviceFacts, Driver
from tilewright.errors import DeviceError, RequestError, an, counted
from tilewright.runtime import timing
from tilewright.runtime.devices import Place
from tilewright.runtime.loader import Kernel
from tilewright.runtime.streams import SCOPED
from tilewright.runtime.torch_memory import TorchMemory

_NON_BLOCKING = 1  # a stream that does not wait for the default stream
_CAPTURING = 1
# More than any kernel of today wants to be zero, so that a workspace seldom has to be made anew for it.
LEAST_CLEARED = 4096
WORKSPACE_GRAIN = 256  # what memory behind the zeros is aligned to


def scoped_stream() -> Stream | None:
    """The stream of the innermost `with stream:`, of whichever device."""
    return SCOPED.get()


class GpuMemory:
    """Bytes of a device.  Giving them back twice does nothing."""

    __slots__ = ("__weakref__", "_release", "address", "nbytes", "place")

    def __init__(self, device: Gpu, address: int, nbytes: int) -> None:
        self.address, self.nbytes, self.place = address, nbytes, device.place
        self._release = weakref.finalize(self, _give_back, device, address)

    def free(self) -> None:
        self._release()


class Workspace:
    """Scratch memory of a stream, behind bytes that are zero between launches.

    Kernels want different numbers of zeros, none of them more than there are here.  Each gets the zeros next to
    the scratch: they are followed by what it may fill, and nobody fills another's.
    """

    __slots__ = ("address", "cleared", "memory", "nbytes")

    def __init__(self, memory: GpuMemory | TorchMemory, cleared: int) -> None:
        self.memory, self.cleared = memory, cleared
        self.address, self.nbytes = memory.address + cleared, memory.nbytes - cleared

    def serves(self, nbytes: int, clear_bytes: int) -> bool:
        return self.cleared >= clear_bytes and self.nbytes + clear_bytes >= nbytes

    def at(self, clear_bytes: int) -> int:
        """Where the workspace of a kernel begins."""
        return self.address - clear_bytes


def _give_back(device: Gpu, address: int) -> None:
    """Runs in finalizers, where nobody catches an error: it is reported, not raised."""
    try:
        with device.active():
            device.driver("Free", address)
    except DeviceError as error:
        events.emit(events.Warned("device-free", error.message))


class Stream:
    """Work in order, beside other streams.  `with stream:` sends the calls of the body to it."""

    __slots__ = ("__weakref__", "_release", "_tokens", "device", "handle")

    def __init__(self, device: Gpu) -> None:
        handle = ctypes.c_void_p()
        with device.active():
            device.driver("StreamCreateWithFlags", ctypes.byref(handle), _NON_BLOCKING)
        self.device, self.handle = device, handle.value or 0
        self._tokens: list[Any] = []
        self._release = weakref.finalize(self, _destroy, device, "StreamDestroy", self.handle)

    def __enter__(self) -> Stream:
        notices.notify(notices.scoped)
        self._tokens.append(SCOPED.set(self))
        return self

    def __exit__(self, *_error: object) -> None:
        SCOPED.reset(self._tokens.pop())

    def synchronize(self) -> None:
        self.device.driver("StreamSynchronize", self.handle)

    def wait(self, event: Event) -> None:
        """Later work of this stream waits for the event."""
        self.device.driver("StreamWaitEvent", self.handle, event.handle, 0)

    def close(self) -> None:
        self.device.drop_workspace(self.handle)
        self._release()


class Event:
    """A mark in a stream, with the time the device reached it."""

    __slots__ = ("__weakref__", "_release", "device", "handle")

    def __init__(self, device: Gpu) -> None:
        handle = ctypes.c_void_p()
        with device.active():
            device.driver("EventCreateWithFlags", ctypes.byref(handle), 0)
        self.device, self.handle = device, handle.value or 0
        self._release = weakref.finalize(self, _destroy, device, "EventDestroy", self.handle)

    def record(self, stream: int | None = None) -> Event:
        self.device.driver("EventRecord", self.handle, self.device.stream() if stream is None else stream)
        return self

    def synchronize(self) -> None:
        self.device.driver("EventSynchronize", self.handle)

    def seconds_since(self, start: Event) -> float:
        took = ctypes.c_float()
        self.device.driver("EventElapsedTime", ctypes.byref(took), start.handle, self.handle)
        return took.value / 1e3

    def close(self) -> None:
        self._release()


def _destroy(device: Gpu, call: str, handle: int) -> None:
    status = device.driver.status(call, handle)
    if status:
        events.emit(events.Warned("device-free", device.driver.error(call, status).message))


class Gpu:
    """One device.  `kind` is the name of its backend.

    Each stream has a workspace that grows and stays.  One that was handed out while its stream was captured is
    pinned: the graph keeps its address, so nothing but `drop_workspaces` gives it back.  It has as many zeros as
    any kernel wanted so far; one that wants more gets a new one.
    """

    def __init__(self, kind: str, driver: Driver, facts: DeviceFacts) -> None:
        self.driver = driver
        self.facts = facts
        self.place = Place(kind, facts.index)
        self._lock = threading.RLock()
        self._workspaces: dict[int, Workspace] = {}  # by stream: work of one stream never overlaps
        self._pinned: dict[int, Workspace] = {}  # by address: graphs may use these
        self._clear_bytes = LEAST_CLEARED  # of new workspaces

    def __repr__(self) -> str:
        return f"<{self.place} {self.facts.name} ({self.facts.arch})>"

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def arch(self) -> str:
        return self.facts.arch

    @property
    def identity(self) -> Mapping[str, Any]:
        facts = self.facts
        return {
            "model": facts.name,
            "arch": facts.arch,
            "compute_units": facts.compute_units,
            "memory_bytes": facts.memory_bytes,
            "driver": facts.driver,
        }

    @property
    def cache_bytes(self) -> int:
        # Runtimes report the L2; the memory-side cache behind it is in the arch facts only.
        known = all_archs().get(self.facts.arch)
        return max(self.facts.cache_bytes, known.last_cache_bytes if known is not None else 0)

    def demand_arch(self, arch: str) -> None:
        mine = self.facts.arch
        known = all_archs().get(mine)
        if arch == mine or (known is not None and arch in known.includes):
            return
        raise DeviceError(
            f"{self.place} is {an(self.facts.name)} of arch {mine}, which does not run kernels of {arch}",
            rule="device-arch",
            value=mine,
            remedy=f"use target {mine!r}" if known is not None else f"there are no kernels for {mine} yet",
        )

    # -- which device is current -------------------------------------------------------------------

    def current_index(self) -> int:
        index = ctypes.c_int()
        self.driver("GetDevice", ctypes.byref(index))
        return index.value

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the thread's current device for the body, and restore the one before."""
        before = self.current_index()
        if before == self.place.ordinal:
            yield
            return
        self.driver("SetDevice", self.place.ordinal)
        try:
            yield
        finally:
            self.driver("SetDevice", before)

    # -- memory ------------------------------------------------------------------------------------

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.active():
            self.driver("MemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, nbytes: int) -> GpuMemory:
        if nbytes < 0:
            raise RequestError(f"{nbytes} bytes cannot be allocated", rule="allocation", value=nbytes)
        if self.capturing(self.stream()):
            raise self._no_allocation(nbytes)
        return self._allocate(nbytes)

    def _allocate(self, nbytes: int, make_room: bool = True) -> GpuMemory:
        address = ctypes.c_void_p()
        size = max(1, nbytes)
        with self.active():
            status = self.driver.status("Malloc", ctypes.byref(address), size)
            if status == OUT_OF_MEMORY and make_room and self._drop_unpinned():  # memory we only keep to save time
                self.driver.take_last_error()
                status = self.driver.status("Malloc", ctypes.byref(address), size)
            if status == OUT_OF_MEMORY:
                raise self._out_of_memory(nbytes, status)
            if status:
                raise self.driver.error("Malloc", status)
        return GpuMemory(self, address.value or 0, nbytes)

    def _no_allocation(self, nbytes: int) -> DeviceError:
        return DeviceError(
            f"{nbytes} bytes would have to be allocated on {self.place} while the stream is captured into a graph",
            rule="capture-allocation",
            value=nbytes,
            remedy="run the same call once on the stream before capturing, with arrays made beforehand (out=...): "
            "what it needs is then kept for the graph",
        )

    def _out_of_memory(self, nbytes: int, status: int) -> DeviceError:
        self.driver.take_last_error()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        known = self.driver.status("MemGetInfo", ctypes.byref(free), ctypes.byref(total)) == 0
        room = f"{free.value} of {total.value} bytes are free" if known else "how much is free is unknown"
        return DeviceError(
            f"{nbytes} bytes do not fit on {self.place}: {room} ({self.driver.describe(status)})",
            rule="device-memory",
            value=nbytes,
            remedy="free arrays, use a smaller problem, or give back what PyTorch keeps (torch.cuda.empty_cache())",
        )

    def write(self, address: int, source: int, nbytes: int) -> None:
        self._copy(address, source, nbytes, HOST_TO_DEVICE)

    def read(self, target: int, address: int, nbytes: int) -> None:
        self._copy(target, address, nbytes, DEVICE_TO_HOST)

    def _copy(self, target: int, source: int, nbytes: int, direction: int) -> None:
        if not nbytes:
            return
        with self.active():
            stream = self.stream()
            self.driver("MemcpyAsync", target, source, nbytes, direction, stream)
            self.driver("StreamSynchronize", stream)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        if nbytes:
            with self.active():
                self.driver("MemsetAsync", address, byte, nbytes, self.stream())

    def copy_rows(self, target: int, target_pitch: int, source: int, pitch: int, width: int, rows: int) -> None:
        """Rows of `width` bytes from memory of this device to other, in the order of the current stream."""
        if not width or not rows:
            return
        if rows == 1:  # pitches have an upper limit, and one row has no use for them
            target_pitch = pitch = width
        with self.active():
            self.driver("Memcpy2DAsync", target, target_pitch, source, pitch, width, rows, ANY_TO_ANY, self.stream())

    # -- order -------------------------------------------------------------------------------------

    def stream(self) -> int:
        """That of a `with stream:` around us, else PyTorch's current one, else the default stream."""
        scoped = SCOPED.get()
        if scoped is not None and scoped.device.place == self.place:
            return scoped.handle
        return torch_stream(self.place)

    def new_stream(self) -> Stream:
        return Stream(self)

    def new_event(self) -> Event:
        return Event(self)

    def synchronize(self) -> None:
        with self.active():
            self.driver("DeviceSynchronize")

    def stopwatch(self) -> timing.Stopwatch:
        return timing.EventStopwatch(self)

    # -- running kernels ---------------------------------------------------------------------------

    def capturing(self, stream: int) -> bool:
        """Whether work of this stream goes into a graph instead of running."""
        state = ctypes.c_int()
        with self.active():  # the default stream is the current context's
            status = self.driver.status("StreamIsCapturing", stream, ctypes.byref(state))
            if status:  # the default stream while another one is captured: work on it has its own error
                self.driver.take_last_error()
        return status == 0 and state.value == _CAPTURING

    def workspace(self, nbytes: int, stream: int, clear_bytes: int = 0) -> int:
        """At least `nbytes` that work of this stream shares, the first `clear_bytes` of them zero.

        Hold the lock until the launch is queued.
        """
        known = self._workspaces.get(stream)
        enough = known is not None and known.serves(nbytes, clear_bytes)
        if known is not None and enough and known.address in self._pinned:
            return known.at(clear_bytes)
        captured = self.capturing(stream)
        if known is None or not enough:
            self._clear_bytes = max(self._clear_bytes, -(-clear_bytes // WORKSPACE_GRAIN) * WORKSPACE_GRAIN)
            if captured:
                known = self._kept_for_capture(nbytes, clear_bytes, stream)
            else:
                # Freeing waits for the device, so a kernel that still uses the old one ends first.
                self.drop_workspace(stream)
                known = self._new_workspace(nbytes, stream)
            self._workspaces[stream] = known
        if captured:
            self._pinned[known.address] = known
        return known.at(clear_bytes)

    def _new_workspace(self, nbytes: int, stream: int) -> Workspace:
        with self.active():
            workspace = Workspace(self._allocate(self._clear_bytes + nbytes), self._clear_bytes)
            self.driver("MemsetAsync", workspace.memory.address, 0, workspace.cleared, stream)
        return workspace

    def _kept_for_capture(self, nbytes: int, clear_bytes: int, stream: int) -> Workspace:
        """A workspace for a stream that is captured and has none: nothing can be allocated then."""
        raise self._no_allocation(nbytes)

    def _for_one_call(self, nbytes: int, clear_bytes: int, stream: int) -> Workspace | None:
        """A workspace that is given back when the call is queued, where one is better than the stream's own."""
        return None

    @contextmanager
    def scratch(self, nbytes: int, clear_bytes: int = 0) -> Iterator[tuple[int, int]]:
        """At least `nbytes` of the current stream's workspace for what the body queues, and that stream.

        Before the address are `clear_bytes` of zeros.  Nothing is allocated, nor the lock held, where neither is
        wanted.
        """
        with self.active():
            stream = self.stream()
            if not nbytes and not clear_bytes:
                yield 0, stream
                return
            with self._lock:  # until the launch is queued, so that nobody frees the workspace before it
                once = self._for_one_call(nbytes + clear_bytes, clear_bytes, stream)
                if once is not None:
                    try:
                        yield once.address, stream
                    finally:
                        once.memory.free()
                    return
                address = self.workspace(nbytes + clear_bytes, stream, clear_bytes) + clear_bytes
                # The short path in C asks no lock: it must not find results that kernels of this call still read.
                lent = self._workspaces.pop(stream)
                try:
                    yield address, stream
                finally:
                    self._workspaces[stream] = lent

    def drop_workspace(self, stream: int) -> None:
        """Give back the workspace of a stream; one that a graph uses stays."""
        with self._lock:
            known = self._workspaces.pop(stream, None)
            if known is not None and known.address not in self._pinned:
                known.memory.free()

    def _drop_unpinned(self) -> bool:
        """Give back what no graph uses; True when there was anything."""
        with self._lock:
            idle = [stream for stream, workspace in self._workspaces.items() if workspace.address not in self._pinned]
            for stream in idle:
                self.drop_workspace(stream)
        return bool(idle)

    def drop_workspaces(self) -> None:
        """Give back every workspace, those of graphs too: such graphs must not be replayed any more."""
        with self._lock:
            self._drop_unpinned()
            self._workspaces.clear()
            while self._pinned:
                self._pinned.popitem()[1].memory.free()

    @property
    def workspaces(self) -> dict[int, Workspace]:
        """By stream; for the short path in C, which only looks."""
        return self._workspaces

    def questions(self) -> tuple[Any, int, Any]:
        """The runtime's function that returns what is current in a thread, its answer where this device is, and the
        function that returns whether a stream is captured."""
        library, prefix = self.driver.library, self.driver.prefix
        return (
            getattr(library, f"{prefix}GetDevice"),
            self.place.ordinal,
            getattr(library, f"{prefix}StreamIsCapturing"),
        )

    def load(self, kernel: Kernel) -> None:
        """A kernel's code, which takes up to a tenth of a second."""
        with self.active():
            status = kernel.load()
        if status:
            raise self.launch_error(kernel, status, 0)

    def launch_error(self, kernel: Kernel, status: int, args: int) -> Exception:
        """What the runtime library says about a launch that failed; the kernel's own answer where it says nothing."""
        held = self.driver.take_last_error()
        if held:
            return self.driver.error("LaunchKernel", held, what=f"the launch of {kernel.name} on {self.place}")
        return kernel.failed(status, args)


_Device = TypeVar("_Device", bound=Gpu)


class Devices(Generic[_Device]):
    """The devices that a runtime library sees, each made once; `library` is a backend's driver module."""

    def __init__(self, library: Any, kind: str, name: str, make: Callable[[Any, DeviceFacts], _Device]) -> None:
        self._library, self._kind, self._name, self._make = library, kind, name, make
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], _Device] = {}

    def device(self, index: int) -> _Device:
        """The device with this index; none is an error that says what is missing."""
        facts = self._library.devices()
        if not 0 <= index < len(facts):
            raise DeviceError(
                f"there is no {self._kind}:{index}; the {self._name} sees {counted(len(facts), 'device')}",
                rule="device-index",
                value=index,
                remedy=f"use an index from 0 to {len(facts) - 1}",
            )
        driver = self._library.driver()
        with self._lock:
            known = self._known.get((driver.path, index))
            if known is None or known.driver is not driver:
                known = self._known[driver.path, index] = self._make(driver, facts[index])
        return known

    def all(self) -> tuple[_Device, ...]:
        return tuple(self.device(device.index) for device in self._library.devices())


def torch_stream(place: Place) -> int:
    """PyTorch's current stream of a device where this process uses PyTorch on it, else the default stream."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    version = getattr(torch, "version", None)
    if cuda is None or (getattr(version, "hip", None) is not None) != (place.kind == "hip"):
        return 0
    if not cuda.is_initialized():  # asking for its stream would start PyTorch's own device context
        return 0
    return int(cuda.current_stream(place.ordinal).cuda_stream)
