"""A kernel family of your own: the package `kernel_family/rowdot` has schedule, rules, cost and a C++ kernel for GEMM.

Once it is installed, or on the path as here, its kernels are in the op's pools: selection compares them with those that
ship, measurements time them, and every command knows them. The family is one of the CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent / "kernel_family"))  # what `pip install` would do
from _common import check, normal, options, to_device

given = options(__doc__, m=24, n=64, k=100, rounds=2)
registry = tw.Registry()
problem = tw.GemmProblem(m=given.m, n=given.n, k=given.k, layout="rcr")
mine = [spec for spec in registry.candidates(problem) if spec.schedule.pipeline == "row_dot"]
if registry.kind != "cpu":
    print(f"the family has no kernels for {registry.target}")
    raise SystemExit(0)
print(f"{len(mine)} of {len(registry.candidates(problem))} candidates are of the family: {mine[0].name}, ...")

# Each of its kernels, built and called by itself.
rng = np.random.default_rng(0)
a, w = normal(rng, given.m, given.k), normal(rng, given.n, given.k)
A, W = to_device(a, w.T)
for spec in mine:
    check(spec.schedule.label(), registry.kernel(spec)(A, W), a.astype(np.float64) @ w.T)

# Beside one that ships: checked by the bound of the op, timed in turns.
default = registry.select(problem).stages[0].spec
record = registry.measure(problem, [default, mine[-1]], rounds=given.rounds, save=False)
for timing in record.timings:
    print(f"{timing.seconds * 1e6:8.1f} us  error/bound {timing.error:.3f}  {timing.name}")
    if timing.error > 1.0:
        sys.exit("WRONG: the error is larger than its bound")

# Its limits are reasons in the explanation, and a rule it breaks refuses a spec by name.
odd = registry.explain(tw.GemmProblem(m=given.m, n=4 * given.n + 1, k=given.k, layout="rcr"))
reasons = {one.reasons[0] for one in odd.candidates if "row_dot" in one.name}
print("; ".join(sorted(reasons)))
if not all("row-dot-columns" in reason for reason in reasons) or not reasons:
    sys.exit("the limits of the family are not asked")
