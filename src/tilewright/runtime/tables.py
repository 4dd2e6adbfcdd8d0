"""What tables on a device hold, looked at before a call: the setting `check_tables`.

Kernels of the host look at their tables themselves, which costs next to nothing; only where a stage writes a result and
a later one has tables of its own they are looked at here too, before anything is written.  On a device that would be
one more kernel and a wait for its answer in every call, so tables are believed there; with the setting they are copied
to the host and checked by the op's binding, and a wrong one is the error it is on a CPU.  Such a call waits for its
stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.dtypes import DTYPES
from tilewright.errors import DeviceError, ProblemError
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings import Binding
from tilewright.runtime.devices import HOST, Device, device
from tilewright.runtime.lines import extent
from tilewright.runtime.plans import Plan
from tilewright.runtime.requests import BETWEEN


def checked(op: Binding, plan: Plan) -> bool:
    """Whether the tables of a plan's calls are looked at here."""
    if plan.place is HOST:
        return len(plan.stages) > 1 and _writes_before_it_reads(op, plan)
    return settings.current().check_tables


def _writes_before_it_reads(op: Binding, plan: Plan) -> bool:
    """Whether a result is written by a stage before the first that looks at some table: its error would be late."""
    first, *others = ({at.slot for at in stage.request.pointers if at.slot != BETWEEN} for stage in plan.stages)
    if not others or not any(op.slots[slot].written for slot in first):
        return False
    return any(op.slots[slot].holds for slot in set().union(*others) - first)


def demand(op: Binding, plan: Plan, views: Sequence[Any]) -> None:
    """Raise where a table holds what the op says it may not."""
    there = device(plan.place)
    held = {
        slot.name: view
        for slot, view in zip(op.slots, views, strict=True)
        if slot.holds and isinstance(view, View) and view.dtype in DTYPES
    }
    if not held:
        return
    capturing = getattr(there, "capturing", None)
    if capturing is not None and capturing(there.stream()):
        raise DeviceError(
            f"{', '.join(held)} cannot be checked while the stream is captured into a graph",
            rule="capture-tables",
            value=True,
            remedy="capture without the setting check_tables, after a call that had it",
        )
    tables = {name: _on_host(there, view) for name, view in held.items()}
    for stage in plan.stages:
        wrong = op.wrong_table(stage.request, tables)
        if wrong:
            raise plan.out_of_range(wrong)


def with_entry(op: Binding, plan: Plan, views: Sequence[Any], error: Exception) -> Exception:
    """What a kernel of the host found wrong with a table, with the entry, which it does not report: we look for it."""
    if plan.place is not HOST or not isinstance(error, ProblemError) or error.rule != "operand-values":
        return error
    named = zip(op.slots, views, strict=True)
    held = {
        slot.name: _on_host(None, view)
        for slot, view in named
        if slot.holds and isinstance(view, View) and view.dtype in DTYPES and view.place is HOST
    }
    for stage in plan.stages:
        wrong = op.wrong_table(stage.request, held)
        if "[" in wrong:
            return plan.out_of_range(wrong)
    return error


def _on_host(there: Device | None, view: View) -> np.ndarray[Any, Any]:
    """A copy of what an array holds."""
    low, high = extent(view.shape, view.strides, view.itemsize)
    memory = (ctypes.c_uint8 * max(1, high - low))()
    if high > low:
        if there is None or view.place is HOST:
            ctypes.memmove(memory, view.address + low, high - low)
        else:
            there.read(ctypes.addressof(memory), view.address + low, high - low)
    steps = tuple(step * view.itemsize for step in view.strides)
    kind = np.dtype(DTYPES[view.dtype].numpy_name)
    return np.ndarray(view.shape, kind, memoryview(memory), -low if high > low else 0, steps).copy()
