"""The ops: what can be computed.  An op knows arch facts, never a backend."""

from __future__ import annotations

from tilewright import events, plugins
from tilewright.errors import PluginError
from tilewright.ops.base import KernelSpec, Op, Violation

__all__ = ["KernelSpec", "Op", "Violation", "all_ops", "op", "op_names"]

GROUP = "tilewright.ops"


def op_names() -> list[str]:
    """Every op that is installed, none of them loaded."""
    return plugins.names(GROUP)


def op(name: str) -> Op:
    """The op called `name`; an unknown name is an error with the nearest known one."""
    loaded: Op = plugins.load(GROUP, name, "an op", Op)
    return loaded


def all_ops() -> dict[str, Op]:
    """Every op that can be loaded; one that cannot is reported as an event, and the others work."""
    by_name = {}
    for name in op_names():
        try:
            by_name[name] = op(name)
        except PluginError as error:
            events.emit(events.Warned("plugin", error.message))
    return by_name
