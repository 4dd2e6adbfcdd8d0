"""What GEMM asks of a kernel family beyond `ops.families.FamilyRules`, with the plain answers."""

from __future__ import annotations

from typing import Any

from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import ONE, Shape


class GemmFamily:
    def grains(self, schedule: Any) -> Shape:
        """What m, n and k must be multiples of: 1 where the kernel has edge code."""
        return ONE

    def copied_sizes(self, schedule: Any, problem: GemmProblem) -> Shape:
        """m, n and k of the copies in which a kernel serves a problem that it refuses as it lies."""
        return problem.m, problem.n, problem.k

    def pack_format(self, schedule: Any) -> tuple[object, ...]:
        """What the bytes of a packed B depend on beyond arch and types."""
        return ()
