"""What the kernels of attention's gradients share on GPUs of any vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RowsSchedule:
    """A block takes so many rows of a head as are prepared together."""

    pipeline: str = field(default="rows", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("rows",)
    serves: ClassVar[tuple[str, ...]] = ("dot", "convert")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return self.pipeline
