"""The Python API: what users call as `tilewright.NAME`.

An op's functions are in a module of its own beside this one (or in another package) and are found by entry point
(`tilewright.api`).  Here is what they share: which target a call means, and what is of no op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import settings
from tilewright.arch import all_archs
from tilewright.backends.base import backend_names, resolve_target, target_name
from tilewright.build import bundled
from tilewright.dispatch import records
from tilewright.dispatch.registry import Registry, default_registry
from tilewright.dispatch.selection import Explanation
from tilewright.errors import DeviceError, ProblemError, an
from tilewright.runtime import fast_path
from tilewright.runtime.arrays import array_place
from tilewright.runtime.bindings.numbers import whole_number
from tilewright.runtime.devices import HOST, Place, device, device_of

if TYPE_CHECKING:
    from tilewright.runtime.device_arrays import DeviceArray

__all__ = ["explain", "registry_for", "registry_of", "target_of", "to_device"]

fast_path.watch(vars(records), "epoch")  # plans are made anew where a measurement came
_ndarray = np.ndarray
_current = settings.current
_registries: dict[str, Registry] = {}
_targets: dict[tuple[type[Any], Any], str] = {}  # by the type of an array and its device, where that says it all


def target_of(array: Any, target: str | None = None) -> str:
    """The target a call means: the one named, the setting's, or the arch of the device its first array is on."""
    name = target_name(target)
    if name:
        return name
    kind = type(array)
    if not fast_path.reads(kind) or not hasattr(array, "device"):
        return _target_at(array_place(array))
    where = (kind, array.device)
    known = _targets.get(where)
    return known if known is not None else _targets.setdefault(where, _target_at(array_place(array)))


def registry_of(array: Any, target: str | None) -> Registry:
    """The registry of the target a call means: `target_of` for NumPy's arrays in as few steps as there are."""
    name = _current().target if target is None and type(array) is _ndarray else target_of(array, target)
    registry = _registries.get(name)
    return registry if registry is not None else registry_for(name)


def _target_at(place: Place) -> str:
    if place is HOST or place.kind not in backend_names():
        return ""  # the best of the host; reading the array says what is wrong with its place
    return place.kind if place.ordinal < 0 else bundled.served_target(arch_of(place))


def arch_of(place: Place) -> str:
    """The arch of a device, which must be one that kernels are made for."""
    there = device(place)
    if there.arch not in all_archs():
        known = ", ".join(name for name, facts in all_archs().items() if facts.backend == place.kind)
        raise DeviceError(
            f"{place} ({there.name}) is of arch {there.arch}, for which there are no kernels",
            rule="arch-not-runnable",
            value=there.arch,
            remedy=f"use a device of {known}, or arrays in host memory",
        )
    return there.arch


def registry_for(target: str) -> Registry:
    """The registry of a target; an empty name is the best of the host."""
    registry = _registries.get(target)
    return registry if registry is not None else _registries.setdefault(target, default_registry(target))


def forget_targets() -> None:
    """Other bundles are in force: which target an array means may have changed."""
    _registries.clear()
    _targets.clear()


def to_device(array: Any, target: str | None = None, index: int | None = None) -> DeviceArray:
    """Copy a NumPy array to the memory of the device that runs the target's kernels.

    `index` selects one of several devices.  `.numpy()` of the result copies back; other libraries can read it through
    DLPack.
    """
    if not isinstance(array, np.ndarray):
        raise ProblemError(
            f"the array is {an(type(array).__name__)}, not a NumPy array",
            rule="array-type",
            value=type(array).__name__,
            remedy="give np.asarray(...) of it; arrays of a device are taken as they are, by every call",
        )
    if index is not None:
        index = whole_number("device", "index", index)
    from tilewright.runtime.device_arrays import DeviceArray

    return DeviceArray.of(device_of(resolve_target(target).name, index), array)


def explain(
    problem: Any, *, target: str | None = None, threads: int | None = None, strict: bool | None = None
) -> Explanation:
    """Explain which kernel serves a problem, why, and which others do or do not; nothing is compiled."""
    return registry_for(target_name(target)).explain(problem, threads=threads, strict=strict)
