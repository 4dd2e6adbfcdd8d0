"""The stages of a problem: dot, grad, and convert where `grad` leaves fp32 accumulators.

Which results it leaves depends on the kernels of a backend (`AttentionBackwardSpace.accumulates`); `tilewright bench
attention_backward --split-plans --save` times each way that is worth it, and from then on the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention_backward import legality
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem


def accumulates(problem: AttentionBackwardProblem, arch: str) -> tuple[str, ...]:
    """The ways to compute a problem, by what is left to `convert`; what the problem says itself is the only one."""
    if problem.accumulate:
        return (problem.accumulate,)
    target = arch_by_name(arch)
    space = legality.SPACES.get(target.family)
    kinds: tuple[str, ...] = space.accumulates(problem, target) if space is not None else ("none",)
    return kinds


def dkv_splits(problem: AttentionBackwardProblem, arch: str) -> tuple[int, ...]:
    """In how many parts dk and dv of a head of keys are summed, where they are; what the problem says goes first."""
    if problem.dkv_splits:
        return (problem.dkv_splits,)
    target = arch_by_name(arch)
    space = legality.SPACES.get(target.family)
    parts: tuple[int, ...] = space.dkv_splits(problem, target) if space is not None else (0,)
    return parts


def dot_clears(arch: str) -> bool:
    """Whether `dot` sets the accumulator of dq to zero, so that `grad` needs no kernel of its own for it."""
    target = arch_by_name(arch)
    space = legality.SPACES.get(target.family)
    return space is not None and bool(space.dot_clears(target))


def stages_of(
    problem: AttentionBackwardProblem, accumulate: str, dkv_splits: int = 0
) -> Sequence[AttentionBackwardProblem]:
    last = () if accumulate == "none" else (problem.stage("convert", accumulate, dkv_splits),)
    return (problem.stage("dot"), problem.stage("grad", accumulate, dkv_splits), *last)


def split_plans(problem: AttentionBackwardProblem, arch: str) -> Mapping[str, Sequence[AttentionBackwardProblem]]:
    """The stages of each way; a stage by itself is one."""
    if problem.family:
        return {"": (problem,)}
    plans = {}
    for kind in accumulates(problem, arch):
        for parts in dkv_splits(problem, arch) if kind in ("dkv", "all") else (0,):
            plans[_named(kind, parts)] = stages_of(problem, kind, parts)
    return plans


def _named(accumulate: str, parts: int) -> str:
    if accumulate == "none":
        return "no accumulators"
    return f"accumulators of {accumulate}" + (f" in {parts} splits" if parts else "")
