"""What is found by entry point: ops, their bindings, backends and the kernels backends have for ops.

    tilewright.ops            X = the op: specs, legality, pools, problems        (ops.base.Op)
    tilewright.bindings       X = how arrays become calls of it                   (runtime.bindings.Binding)
    tilewright.backends       B = a backend                                       (backends.base.Backend)
    tilewright.kernels.B      X = all that backend B knows of the op              (backends.base.OpKernels)
    tilewright.api            N = a function that users find as tilewright.N

So an op may live in another package, and nothing here names one.  Nothing is loaded before it is asked for: another
plug-in that is broken or slow to import does not matter.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tilewright.errors import InternalError, UnknownNameError, nearest


@lru_cache(maxsize=64)
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda one: one.name)}


def names(group: str) -> list[str]:
    """What is installed under a group, none of it loaded."""
    return list(_points(group))


def forget() -> None:
    """Look again: for a program that changes what is on its path after it first asked."""
    _points.cache_clear()
    load.cache_clear()


@lru_cache(maxsize=256)
def load(group: str, name: str, what: str) -> Any:
    """The object under a name; `what` says in the error what it should have been."""
    point = _points(group).get(name)
    if point is None:
        rule = f"{what.rpartition(' ')[2]}-name"
        raise UnknownNameError(f"{name!r} is not {what}", rule=rule, value=name, remedy=nearest(name, names(group)))
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise InternalError(
            f"{what} {name!r} is installed as {point.value} and cannot be loaded: {error}",
            rule="plugin",
            value=point.value,
            remedy="install the package that brings it again, or remove it",
        ) from error
