"""Device memory from PyTorch's caching allocator, where PyTorch has started CUDA in this process.

The default stream's workspace and those of calls that PyTorch captures come from there: they are in its statistics, go
back to where its tensors are made of, and belong to the pool of the graph.  The allocator orders memory by stream: what
was given back may still be read by work that is queued on its stream, so whoever gets it next must use it on that
stream, and clear it there too.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from tilewright import events
from tilewright.runtime.devices import Place


class TorchMemory:
    """Bytes of PyTorch's allocator.  Giving them back twice does nothing; a process that ends gives nothing back."""

    __slots__ = ("__weakref__", "_release", "address", "nbytes", "place")

    def __init__(self, cuda: Any, address: int, nbytes: int, place: Place) -> None:
        self.address, self.nbytes, self.place = address, nbytes, place
        self._release = weakref.finalize(self, _give_back, cuda, address)
        self._release.atexit = False

    def free(self) -> None:
        self._release()


def _give_back(cuda: Any, address: int) -> None:
    """Runs in finalizers, where nobody catches an error: it is reported, not raised."""
    try:
        cuda.caching_allocator_delete(address)
    except RuntimeError as error:
        events.emit(events.Warned("device-free", str(error)))


def started() -> Any:
    """PyTorch's module `torch.cuda` where it has devices in use; None where PyTorch has no part in this process."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or getattr(getattr(torch, "version", None), "hip", None) is not None:
        return None
    known = hasattr(cuda, "caching_allocator_alloc") and hasattr(cuda, "caching_allocator_delete")
    return cuda if known and cuda.is_initialized() else None


def allocate(cuda: Any, place: Place, nbytes: int, stream: int) -> TorchMemory | None:
    """Memory for work on a stream; None where there is no room for it."""
    try:
        address = cuda.caching_allocator_alloc(nbytes, place.ordinal, stream)
    except cuda.OutOfMemoryError:
        return None
    return TorchMemory(cuda, int(address), nbytes, place)
