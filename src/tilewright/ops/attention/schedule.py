"""The schedule of fallback kernels, which serve every family of signatures: forward, split, combine, append."""

from __future__ import annotations

from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops import schedules
from tilewright.ops.attention.spec import FAMILIES
from tilewright.ops.attention_terms import AttentionSchedule

__all__ = ["AttentionSchedule", "LoopsSchedule"]


@dataclass(frozen=True, slots=True)
class LoopsSchedule(schedules.LoopsSchedule):
    serves: ClassVar[tuple[str, ...]] = FAMILIES
