"""What the schedules of every op have, and the schedule of fallback kernels.

A schedule is a frozen dataclass with the fields its kernels read, `pipeline` among them, a `label()` for its part of a
kernel's name, and the class attributes that `ops.rules` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Protocol

from tilewright.dataclass import dataclass


class Schedule(Protocol):
    """What every schedule has; an op may want more."""

    pipelines: ClassVar[tuple[str, ...]]
    choices: ClassVar[Mapping[str, tuple[str, ...]]]
    may_be_zero: ClassVar[tuple[str, ...]]

    @property
    def pipeline(self) -> str: ...

    def label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops: any size, stride, element type and feature; the fallback everywhere."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return self.pipeline
