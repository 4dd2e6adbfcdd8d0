"""What attention reads of a kernel family beyond `ops.families.FamilyRules`, with defaults."""

from __future__ import annotations

from typing import ClassVar

from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec


class AttentionFamily:
    schedule_members: ClassVar[tuple[str, ...]] = ("serves",)  # the families of signatures that a schedule is for

    def meeting_trips(self, spec: KernelSpec, problem: AttentionProblem, pieces: float) -> float | None:
        """Round trips to memory of the fixup of so many pieces of an item's keys, where the kernel distributes all keys
        itself (stream-K).

        None where it does not: splits of the keys are then problems of their own, combined by a second stage.
        """
        return None
