"""A heuristic of your own: decode kernels for few rows, tiled ones for many, instead of the cost estimates.

`where` gives a reason to leave a kernel out (an empty string keeps it); the reasons appear in the explanation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, threshold=32)
registry = tw.Registry()


def heuristic(problem: tw.AttentionProblem) -> Callable[[tw.KernelSpec], str]:
    usable = {one.digest for one in registry.explain(problem).candidates if one.verdict != "refused"}
    specs = [spec for spec in registry.candidates(problem) if spec.digest in usable]
    few = problem.seqlen_q <= given.threshold
    wanted = {spec.digest for spec in specs if ("decode" in spec.schedule.pipeline) == few} or usable
    return lambda spec: "" if spec.digest in wanted else f"{problem.seqlen_q} rows: my threshold is {given.threshold}"


rng = np.random.default_rng(31)
for seqlen_q in (1, 16, 64):
    problem = tw.AttentionProblem(1, 4, seqlen_q, 64, 64, num_splits=1)
    where = heuristic(problem)
    selection = registry.select(problem, where=where)
    by_default = registry.select(problem).stages[0].spec.schedule.label()
    print(f"{seqlen_q} rows: mine {selection.stages[0].spec.schedule.label()}, by default {by_default}")
    if any(where(stage.spec) for stage in selection.stages):
        sys.exit("the heuristic was not obeyed")
    q, k, v = (normal(rng, 1, seqlen, 4, 64) for seqlen in (seqlen_q, 64, 64))
    chosen = tw.Registry(specs=[stage.spec for stage in selection.stages])  # a registry of just that kernel
    o = chosen.run("attention", *to_device(q, k, v), num_splits=1)
    check(f"{seqlen_q} rows", o, _exact.attention(q, k, v).o)

reasons = {one.reasons[0] for one in registry.explain(problem, where=where).candidates if one.verdict == "refused"}
print(f"left out: {'; '.join(sorted(reasons))}")
