"""Into how many splits the keys of a problem are divided where nobody says: the design space of the arch decides.

A space without an answer computes all keys in one kernel, as CPU kernels do, which share the keys of a row among
threads by themselves.
"""

from __future__ import annotations

from typing import Any

from tilewright.arch import Arch
from tilewright.ops.attention import legality
from tilewright.ops.attention.problem import AttentionProblem

LEAST_KEYS = 256  # of a split


def splits_of(problem: AttentionProblem, arch: Arch) -> int:
    """Splits of a forward problem on an arch; 1 of a stage."""
    if problem.family != "forward":
        return 1
    return problem.num_splits or _answer("kv_splits", problem, arch)


def independent_splits(problem: AttentionProblem, arch: Arch) -> int:
    """The same without kernels that divide the keys of all sequences among their blocks themselves."""
    return _answer("independent_splits", problem, arch)


def may_split(arch: Arch) -> bool:
    """Whether kernels of the arch compute splits of the keys in parallel."""
    decide = getattr(legality.SPACES.get(arch.family), "may_split", None)
    return decide is not None and bool(decide(arch))


def _answer(name: str, problem: AttentionProblem, arch: Arch) -> int:
    space: Any = legality.SPACES.get(arch.family)
    decide = getattr(space, name, None)
    return 1 if decide is None else int(decide(problem, arch))
