"""Kernels built beside a program's own work: one at a time, each once, with the lowest priority.

The thread is a daemon: a program that ends does not wait for it.  The store publishes a kernel whole or not at all, so
a compiler that is cut short leaves a work folder that the next clean-up sweeps, and nothing else.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

from tilewright import events, settings
from tilewright.backends.base import not_runnable
from tilewright.dispatch import kernels
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec

_Order = tuple[KernelSpec, settings.Settings]

_lock = threading.Lock()
_ordered: set[tuple[str, tuple[Any, ...]]] = set()  # never twice: one that failed would fail again
_orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_open = 0  # asked for, and neither built nor failed
_settled = threading.Condition(_lock)


def build(spec: KernelSpec) -> bool:
    """Have a kernel built meanwhile, under the settings in force; whether it is, or was asked for before."""
    global _thread, _open
    now = settings.current()
    if now.frozen:
        return False
    key = spec.digest, settings.builds()
    with _lock:
        if key in _ordered:
            return True
        _ordered.add(key)
        _open += 1
        _orders.put((spec, now))
        if _thread is None:
            _thread = threading.Thread(target=_work, name="tilewright-build", daemon=True)
            _thread.start()
    return True


def wait(seconds: float | None = None) -> bool:
    """Until everything asked for is built or has failed; whether it is."""
    with _settled:
        return _settled.wait_for(lambda: _open == 0, seconds)


def _work() -> None:
    global _open
    if sys.platform == "linux":  # where threads have priorities of their own, which compilers inherit
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    while True:
        spec, values = _orders.get()
        try:
            with settings.use(values):
                _build(spec)
        finally:
            with _settled:
                _open -= 1
                _settled.notify_all()


def _build(spec: KernelSpec) -> None:
    try:
        if not_runnable(spec.arch) is None:
            kernels.kernel(spec)  # loaded too, so that the call that takes it does not wait for that
        else:
            kernels.build([spec])
    except TilewrightError as error:
        message = f"{spec.name} could not be built in the background: {error.message}"
        events.emit(events.Warned("background-build", message))


def _after_fork() -> None:
    """A child has none of its parent's threads; what the parent was asked for is the parent's to build."""
    global _lock, _settled, _orders, _thread, _open
    _lock = threading.Lock()
    _settled = threading.Condition(_lock)
    _orders, _thread, _open = queue.SimpleQueue(), None, 0
    _ordered.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
