"""The stages of a problem: dot, grad, and convert where `grad` leaves sums of fp32.

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


def stages_of(problem: AttentionBackwardProblem, accumulate: str) -> Sequence[AttentionBackwardProblem]:
    last = () if accumulate == "none" else (problem.stage("convert", accumulate),)
    return (problem.stage("dot"), problem.stage("grad", accumulate), *last)


def split_plans(problem: AttentionBackwardProblem, arch: str) -> Mapping[str, Sequence[AttentionBackwardProblem]]:
    """The stages of each way; a stage by itself is one."""
    if problem.family:
        return {"": (problem,)}
    ways = accumulates(problem, arch)
    return {f"sums of {kind}" if kind != "none" else "no sums": stages_of(problem, kind) for kind in ways}
