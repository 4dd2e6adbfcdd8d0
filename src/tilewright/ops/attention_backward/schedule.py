"""What schedules of every family share, and the floor.

A schedule is a frozen dataclass with the fields its kernels read, `pipeline` among them, and a `label()` for its part
of a kernel's name.  Rules and tables read these class attributes, of which the last may be missing:

    pipelines    the values of `pipeline` it is for
    serves       the families of signatures (dot, grad, convert) it is for
    words        field to the values it may have, where it is a word
    may_be_zero  number fields that may be 0; others are 1 or more
    axis_names   names of the elements of fields that hold tuples
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tilewright.ops.attention_backward.spec import FAMILIES


class AttentionBackwardSchedule(Protocol):
    """What every schedule has."""

    pipelines: ClassVar[tuple[str, ...]]
    serves: ClassVar[tuple[str, ...]]
    words: ClassVar[Mapping[str, tuple[str, ...]]]
    may_be_zero: ClassVar[tuple[str, ...]]

    @property
    def pipeline(self) -> str: ...

    def label(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops: any size, stride, element type and feature; the floor everywhere."""

    pipeline: str = field(default="loops", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("loops",)
    serves: ClassVar[tuple[str, ...]] = FAMILIES
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return self.pipeline
