"""The design spaces of an op: what each backend knows of its schedules, found by entry point.

An op says what is computed and names no hardware.  Which schedules there are on a target, which of them are legal and
what a legal kernel was not made for, the kernels of the op in the backend say (`space` of its `OpKernels`).
Here they are found by the family of an arch, and loaded when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tilewright import plugins
from tilewright.arch import families


def kernels_group(backend: str) -> str:
    """The entry point group under which ops bring their kernels for a backend."""
    return f"tilewright.kernels.{backend}"


@lru_cache(maxsize=1)
def _backends() -> dict[str, str]:
    """The backend of every family of archs, in the order of the arch table."""
    return families()


class Spaces(Mapping[str, Any]):
    """The design spaces of one op by the family of an arch: those of the backends that have kernels for the op."""

    def __init__(self, op: str) -> None:
        self._op = op
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, family: str) -> Any:
        known = self._loaded.get(family)
        if known is None:
            group = kernels_group(_backends()[family])
            if self._op not in plugins.names(group):
                raise KeyError(family)
            known = plugins.load(group, self._op, f"{self._op} kernels").space
            self._loaded[family] = known
        return known

    def get(self, family: str, default: Any = None) -> Any:
        return self._loaded.get(family) or super().get(family, default)

    def __iter__(self) -> Iterator[str]:
        return (family for family, backend in _backends().items() if self._op in plugins.names(kernels_group(backend)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def schedules(self, family: str) -> tuple[type[Any], ...]:
        """The dataclasses of schedules of a family of archs; none where the op has no kernels for it."""
        space = self.get(family)
        schedules: tuple[type[Any], ...] = space.SCHEDULES if space is not None else ()
        return schedules

    def every_schedule(self) -> tuple[type[Any], ...]:
        """The dataclasses of schedules of all targets, each once, in the order of the arch table."""
        return tuple(dict.fromkeys(kind for family in self for kind in self.schedules(family)))
