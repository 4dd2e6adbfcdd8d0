"""What schedules of every family share, and the floor.

A schedule is a frozen dataclass with the fields its kernels read, `pipeline` among them, a `label()` for its part of a
kernel's name, and the class attributes that `ops.rules` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

MNK = ("m", "n", "k")
SHAPES: Mapping[str, tuple[str, ...]] = {"tile": MNK, "warp_tile": MNK, "warp_grid": MNK}


class ConvSchedule(Protocol):
    """What every schedule has."""

    pipelines: ClassVar[tuple[str, ...]]
    words: ClassVar[Mapping[str, tuple[str, ...]]]
    may_be_zero: ClassVar[tuple[str, ...]]

    @property
    def pipeline(self) -> str: ...

    def label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops, an element of the result at a time: any size, stride and element type; the floor everywhere."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return self.pipeline
