"""A heuristic of your own: a function from a problem to kernels, instead of the cost estimates.

`where` gives a reason to leave a kernel out (an empty string keeps it); the reasons appear in the explanation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

options(__doc__)
registry = tw.Registry()


def small_tiles_for_few_rows(problem: tw.GemmProblem) -> Callable[[tw.KernelSpec], str]:
    """The largest tile for many rows, the smallest for few; of equal ones, the estimate decides."""
    area = {spec.digest: spec.schedule.tile[0] * spec.schedule.tile[1] for spec in registry.candidates(problem)}
    usable = [area[one.digest] for one in registry.explain(problem).candidates if one.verdict != "refused"]
    wanted = max(usable) if problem.m >= 128 else min(usable)

    def where(spec: tw.KernelSpec) -> str:
        return "" if area.get(spec.digest) == wanted else f"my heuristic wants tiles of {wanted} elements"

    return where


rng = np.random.default_rng(6)
chosen = []
for m in (4, 256):
    problem = tw.GemmProblem(m=m, n=96, k=64)
    selection = registry.select(problem, where=small_tiles_for_few_rows(problem))
    chosen.append(selection.spec)
    print(f"m = {m}: mine {selection.spec.schedule.label()}, estimated {selection.seconds * 1e6:.1f} us;"
          f" by default {registry.select(problem).stages[0].spec.schedule.label()}")  # fmt: skip
    a, b = normal(rng, m, 64), normal(rng, 64, 96)
    kernel = registry.kernel(selection.spec)  # built and loaded; callable like tw.gemm
    check(f"m = {m}", kernel(*to_device(a, b)), a.astype(np.float64) @ b)
areas = [spec.schedule.tile[0] * spec.schedule.tile[1] for spec in chosen]
if areas[0] > areas[1]:
    sys.exit("the heuristic was not obeyed")
