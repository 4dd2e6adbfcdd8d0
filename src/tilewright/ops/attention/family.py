"""What attention asks of a kernel family beyond `ops.families.FamilyRules`, with the plain answers."""

from __future__ import annotations

from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec


class AttentionFamily:
    def meeting_trips(self, spec: KernelSpec, problem: AttentionProblem, pieces: float) -> float | None:
        """Trips to memory until so many pieces of the keys of an item have met, where the kernel deals all keys itself.

        None where it does not: parts of the keys are then problems of their own, and put together by a second stage.
        """
        return None
