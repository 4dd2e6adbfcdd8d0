"""Split plans: numbers of splits worth measuring beside the one the heuristic takes (`splits.py`).

Which number is the fastest depends on kernels the heuristic knows nothing of.  `tilewright bench attention
--split-plans --save` times the stages of each.  From then on a problem is computed in the number of splits whose stages
took the least time together (`Registry.stages` decides, `explain` says which).  On a CPU there is one plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.arch import Arch
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import MOST_SPLITS
from tilewright.ops.attention.splits import LEAST_KEYS, independent_splits, may_split, splits_of

BESIDE = (0.5, 2, 4)  # times the number of splits, were there no kernels that divide keys themselves; and one


def counts(problem: AttentionProblem, arch: Arch) -> Sequence[int]:
    """Numbers of splits, the heuristic's (or the user's) first."""
    rule = splits_of(problem, arch)
    if problem.family != "forward" or problem.num_splits or not may_split(arch):
        return (rule,)
    most = max(1, min(MOST_SPLITS, problem.seqlen_k // LEAST_KEYS))
    parts = rule if rule > 1 else independent_splits(problem, arch)
    others = sorted({1, parts, *(round(parts * factor) for factor in BESIDE)} - {0, rule})
    return (rule, *(count for count in others if count <= most))


def stages(problem: AttentionProblem, count: int) -> Sequence[AttentionProblem]:
    """The kernels of a problem in so many splits."""
    return (problem,) if count == 1 else (problem.part(count), problem.combined(count))


def split_plans(problem: AttentionProblem, arch: Arch) -> Mapping[str, Sequence[AttentionProblem]]:
    """The stages of each number of splits, by what it is called."""
    rule, *others = counts(problem, arch)
    plans = {_named(rule): stages(problem, rule)}
    for count in others:  # one split by heuristic is not one split that was asked for
        plans[_named(count)] = stages(replace(problem, num_splits=1) if count == 1 else problem, count)
    return plans


def _named(count: int) -> str:
    return f"{count} split{'s' if count > 1 else ''}"
