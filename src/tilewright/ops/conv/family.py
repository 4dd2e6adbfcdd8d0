"""What convolution asks of a kernel family beyond `ops.families.FamilyRules`, with the plain answers."""

from __future__ import annotations

from typing import Any

from tilewright.ops.conv.problem import ConvProblem


class ConvFamily:
    def remarks(self, schedule: Any, problem: ConvProblem) -> list[str]:
        """What people should know of a kernel on a problem that it serves."""
        return []

    def copied(self, schedule: Any, problem: ConvProblem) -> ConvProblem:
        """The problem that a kernel serves in copies of the operands, where it refuses them in place."""
        return problem.dense()
