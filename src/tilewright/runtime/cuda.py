"""NVIDIA devices through the CUDA driver.

from tilewright.runtime import cuda
device = cuda.device()                # or cuda.all_devices()
with device.new_stream():
    ...
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.backends.cuda import driver as library
from tilewright.backends.cuda.driver import CudaDriver
from tilewright.backends.driver import OUT_OF_MEMORY, DeviceFacts
from tilewright.errors import DeviceError
from tilewright.runtime import torch_memory
from tilewright.runtime.gpu import WORKSPACE_GRAIN, Devices, Event, Gpu, GpuMemory, Stream, Workspace, torch_stream
from tilewright.runtime.gpu import scoped_stream as _scoped_stream
from tilewright.runtime.loader import Kernel

__all__ = [
    "CudaGpu", "Event", "GpuMemory", "Stream", "all_devices", "current_index", "device",
    "facts",
]  # fmt: skip

DLPACK_DEFAULT_STREAM = 1  # as DLPack calls the stream 0 of CUDA
# More than any kernel of today asks for, so that a stream's workspace is made once and seldom moves.
LEAST_WORKSPACE = 32 << 20
MOST_SPARE = 256 << 20  # memory that may be idle for a capture that never happens
_RELAXED = 2
_DEFAULT_STREAM = 0  # which is never captured


class CudaGpu(Gpu):
    """One NVIDIA device.

    PyTorch captures graphs on a stream of its own, where no call was made before.  Where PyTorch has started CUDA, each
    call that goes into such a graph has a workspace from the graph's pool, given back once the call is queued, as
    PyTorch's own ops do; otherwise a spare is kept, beside those in use, for the next stream that is captured.
    """

    driver: CudaDriver

    def __init__(self, driver: CudaDriver, facts: DeviceFacts) -> None:
        super().__init__("cuda", driver, facts)
        self._spare: Workspace | None = None
        self._spent = False  # a capture took the spare
        self._housekeeping: Stream | None = None

    def stream(self) -> int:
        scoped = _scoped_stream()
        if scoped is not None and scoped.device.place == self.place:
            return scoped.handle
        torch = sys.modules.get("torch")
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if raw is None or not torch.cuda.is_initialized():  # type: ignore[union-attr]
            return torch_stream(self.place)
        return int(raw(self.place.ordinal))

    @contextmanager
    def _capture_or_not(self) -> Iterator[None]:
        """Calls that are allowed although a stream of this thread is being captured."""
        mode = ctypes.c_int(_RELAXED)
        self.driver("CaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.driver("CaptureMode", ctypes.byref(mode))

    def workspace(self, nbytes: int, stream: int, clear_bytes: int = 0) -> int:
        address = super().workspace(nbytes, stream, clear_bytes)
        if self._spent and torch_memory.started() is None and not self.capturing(stream):
            self._spent = False  # one attempt: where memory is short, the next workspace makes another
            with self.active(), self._capture_or_not():
                self._keep_spare(min(max(nbytes, LEAST_WORKSPACE), MOST_SPARE))
        return address

    def _new_workspace(self, nbytes: int, stream: int) -> Workspace:
        with self.active(), self._capture_or_not():  # another stream of this thread may be captured
            cuda = torch_memory.started()
            if cuda is None:
                workspace = self._of_driver(nbytes)
                self._keep_spare(min(workspace.nbytes, MOST_SPARE))
                return workspace
            if stream == _DEFAULT_STREAM:
                return self._of_torch(cuda, nbytes, stream)
            # Not from PyTorch's allocator: its compiler warms up on a stream of its own with the pool of the graph that
            # it is about to capture, and refuses the graph when anything but results stays alive there.  (What it
            # captures then has memory of that pool, for each call.)
            try:
                return self._of_driver(nbytes)
            except DeviceError as error:
                if error.rule != "device-memory":
                    raise
                return self._of_torch(cuda, nbytes, stream)  # which may hold memory that nobody uses

    def _of_driver(self, nbytes: int) -> Workspace:
        try:
            return self._cleared(max(nbytes, LEAST_WORKSPACE))
        except DeviceError as error:
            if error.rule != "device-memory" or nbytes >= LEAST_WORKSPACE:
                raise
            return self._cleared(nbytes)  # where memory is short, what is needed must do

    def _of_torch(self, cuda: Any, nbytes: int, stream: int) -> Workspace:
        """A workspace from PyTorch's allocator, cleared in the order of its stream: work that is queued there may still
        use this memory as something else."""
        for wanted in dict.fromkeys((max(nbytes, LEAST_WORKSPACE), nbytes)):
            memory = torch_memory.allocate(cuda, self.place, self._clear_bytes + wanted, stream)
            if memory is None and self._drop_unpinned():
                memory = torch_memory.allocate(cuda, self.place, self._clear_bytes + wanted, stream)
            if memory is not None:
                workspace = Workspace(memory, self._clear_bytes)
                self.driver("MemsetAsync", memory.address, 0, workspace.cleared, stream)
                return workspace
        raise self._out_of_memory(nbytes, OUT_OF_MEMORY)

    def _keep_spare(self, nbytes: int) -> None:
        """A workspace for the next stream that is captured, where memory allows it."""
        if self._spare is not None:
            if self._spare.nbytes >= nbytes and self._spare.cleared >= self._clear_bytes:
                return
            self._spare.memory.free()
            self._spare = None
        try:
            self._spare = self._cleared(nbytes, make_room=False)
        except DeviceError as error:
            if error.rule != "device-memory":
                raise

    def _cleared(self, nbytes: int, make_room: bool = True) -> Workspace:
        workspace = Workspace(self._allocate(self._clear_bytes + nbytes, make_room), self._clear_bytes)
        # On a stream of its own: the caller's may have much to do, and the graph that uses a spare is not on it.
        if self._housekeeping is None:
            self._housekeeping = Stream(self)
        self.driver("MemsetAsync", workspace.memory.address, 0, workspace.cleared, self._housekeeping.handle)
        self._housekeeping.synchronize()
        return workspace

    def _for_one_call(self, nbytes: int, clear_bytes: int, stream: int) -> Workspace | None:
        """For a call on a stream that PyTorch captures: memory of the graph's pool, which other work of the graph may
        use before and after, so that whatever must be zero is cleared in every replay.

        Not the stream's own, which its eager calls and other graphs use: all of them may run at the same time.
        """
        if stream == _DEFAULT_STREAM or _scoped_stream() is not None:
            return None
        cuda = torch_memory.started()
        if cuda is None or not self.capturing(stream):
            return None
        cleared = -(-clear_bytes // WORKSPACE_GRAIN) * WORKSPACE_GRAIN
        with self._capture_or_not():
            memory = torch_memory.allocate(cuda, self.place, cleared + nbytes - clear_bytes, stream)
        if memory is None:
            raise self._out_of_memory(nbytes, OUT_OF_MEMORY)
        if cleared:
            self.driver("MemsetAsync", memory.address, 0, cleared, stream)
        return Workspace(memory, cleared)

    def _kept_for_capture(self, nbytes: int, clear_bytes: int, stream: int) -> Workspace:
        spare = self._spare
        if spare is None or not spare.serves(nbytes, clear_bytes):
            raise self._no_allocation(nbytes)
        self._spare, self._spent = None, True
        return spare

    def _drop_unpinned(self) -> bool:
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None:
                spare.memory.free()
            return super()._drop_unpinned() or spare is not None

    @contextmanager
    def active(self) -> Iterator[None]:
        now = ctypes.c_void_p()
        current = self.driver.library.cuCtxGetCurrent
        if current(ctypes.byref(now)) == 0 and now.value == self.driver.context(self.place.ordinal):
            yield
            return
        with super().active():
            yield

    def questions(self) -> tuple[Any, int, Any]:
        library = self.driver.library
        return library.cuCtxGetCurrent, self.driver.context(self.place.ordinal), library.cuStreamIsCapturing

    def launch_error(self, kernel: Kernel, status: int, args: int) -> Exception:
        code = status >> 8
        if code:
            return self.driver.error("cuLaunchKernelEx", code, what=f"the launch of {kernel.name} on {self.place}")
        return kernel.failed(status, args)


_DEVICES = Devices(library, "cuda", "CUDA driver", CudaGpu)


def owns_torch(torch: Any) -> bool:
    """Whether PyTorch means these devices when it says cuda."""
    return torch.version.hip is None


def facts() -> tuple[DeviceFacts, ...]:
    """What each device says of itself."""
    return library.devices()


def device(index: int = 0) -> CudaGpu:
    """The device with this index; none is an error that says what is missing."""
    return _DEVICES.device(index)


def all_devices() -> tuple[CudaGpu, ...]:
    return _DEVICES.all()


def current_index() -> int:
    """The device CUDA calls of this thread go to."""
    return device(0).current_index()
