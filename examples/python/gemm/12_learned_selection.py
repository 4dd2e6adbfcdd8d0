"""Learned selection: a model predicts the time of every candidate, where it knows the device, the kernels and the
sizes.

Models for the H200 and for Zen 4 ship with Tilewright; `tilewright learn train` makes one of your measurements.
Anywhere else the cost estimate decides, and the explanation says why no model did.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

options(__doc__)
rng = np.random.default_rng(9)
registry, differing = tw.Registry(), 0
sizes = [tuple(int(size) for size in 2 ** rng.uniform(0, 10, 3)) for _ in range(20)]
problems = [tw.GemmProblem(m=max(1, m), n=max(1, n), k=max(1, k)) for m, n, k in sizes]
for problem in problems:
    learned = registry.select(problem)
    with tw.settings.override(models=False):
        estimated = registry.select(problem)
        if estimated.tier == "model":
            sys.exit("a model decided although models are off")
    differing += learned.stages[0].spec != estimated.stages[0].spec

explanation = registry.explain(problems[0])
assert explanation.selection is not None
print(f"{problems[0].describe()}: tier {explanation.selection.tier}: {explanation.selection.reason}")
if explanation.selection.tier != "model":
    print(f"no model decided: {explanation.model or 'none is there for this op and target'}")
print(f"of {len(problems)} random problems, a model selects another kernel than the estimate for {differing}")

# Whoever selects, the result is the same product.
m, n, k = problems[0].m, problems[0].n, problems[0].k
a, b = normal(rng, m, k), normal(rng, k, n)
A, B = to_device(a, b)
for models in (True, False):
    with tw.settings.override(models=models):
        check(f"models {'on' if models else 'off'}", tw.gemm(A, B), a.astype(np.float64) @ b)
