"""Which problems the `shares` pipeline takes, whose blocks divide the keys themselves (`nvidia_schedules.py`)."""

from __future__ import annotations

from functools import lru_cache

from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention import legality, nvidia_schedules
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.ops.base import KernelSpec


@lru_cache(maxsize=4096)
def serves(problem: AttentionProblem, arch: str) -> bool:
    """Whether the usual kernel of the pipeline is legal and takes a forward problem."""
    signature, known = problem.signature, arch_by_name(arch)
    if not nvidia_schedules.own(signature, known):
        return False
    spec = KernelSpec(OP, signature, next(nvidia_schedules.shares(signature, known, False)), arch)
    return not legality.check(spec) and not legality.supports(spec, problem)
