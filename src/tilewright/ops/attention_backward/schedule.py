"""The schedule of fallback kernels, which serve every family of signatures: dot, grad, convert."""

from __future__ import annotations

from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.ops import schedules
from tilewright.ops.attention_backward.spec import FAMILIES
from tilewright.ops.attention_terms import AttentionSchedule as AttentionBackwardSchedule

__all__ = ["AttentionBackwardSchedule", "LoopsSchedule"]


@dataclass(frozen=True, slots=True)
class LoopsSchedule(schedules.LoopsSchedule):
    serves: ClassVar[tuple[str, ...]] = FAMILIES
