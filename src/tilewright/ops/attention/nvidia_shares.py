"""Which problems the `shares` pipeline takes, whose blocks divide the keys themselves (`nvidia_schedules.py`), and what
that costs them."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention import legality, nvidia_schedules
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.ops.base import KernelSpec

TRIP = 2.5e-6  # to memory and back, while everybody else reads
THREADS, LARGE_HEAD = 128, 128


@lru_cache(maxsize=4096)
def serves(problem: AttentionProblem, arch: str) -> bool:
    """Whether the usual kernel of the pipeline is legal and takes a forward problem."""
    signature, known = problem.signature, arch_by_name(arch)
    if not nvidia_schedules.own(signature, known):
        return False
    spec = KernelSpec(OP, signature, next(nvidia_schedules.shares(signature, known, False)), arch)
    return not legality.check(spec) and not legality.supports(spec, problem)


def meeting(problem: AttentionProblem, pieces: float) -> float:
    """Seconds to leave a piece, to count it, and for the last to add up so many of an item: cuda/attention_shares.h."""
    p = problem
    quads = p.rows * (p.heads_q // max(1, p.heads_kv)) * p.head_v / 4
    large = p.head_v > LARGE_HEAD
    columns, at_once = (1, 8 if large else 16) if quads <= THREADS else (2 if large else 4, 4)
    return TRIP * (2 + ceil(quads / (THREADS * columns)) * ceil(pieces / at_once))
