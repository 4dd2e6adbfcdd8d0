"""Several registries in one process: sets of kernels that do not see each other, and targets this machine lacks.

One may hold what a latency-bound service compiled, another what a training job uses. Selection for a GPU that is not
here works too, because it only computes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

options(__doc__)
problem = tw.GemmProblem(m=48, n=80, k=64)
proposed = tw.Registry().candidates(problem)
usable = {one.digest for one in tw.explain(problem).candidates if one.verdict != "refused"}
first, second, *_ = [spec for spec in proposed if spec.digest in usable]
registries = {"first": tw.Registry(specs=[first]), "second": tw.Registry(specs=[second]), "all": tw.Registry()}

rng = np.random.default_rng(7)
a, b = normal(rng, 48, 64), normal(rng, 64, 80)
A, B = to_device(a, b)
for name, registry in registries.items():
    selection = registry.select(problem)
    check(f"{name}: {selection.spec.schedule.label()}"[:44], registry.run("gemm", A, B), a.astype(np.float64) @ b)
if registries["first"].select(problem).spec != first or registries["second"].select(problem).spec != second:
    sys.exit("a registry selected a kernel of another one")

# Other targets: nothing is compiled or run, the choice and its estimate are computed.
half = tw.GemmProblem(m=4096, n=4096, k=4096, dtype_a="bf16", layout="rcr")
for target in ("x86_64_v3", "sm_80", "sm_90a", "gfx942"):
    selection = tw.Registry(target).select(half)
    print(f"{target:<10} {selection.seconds * 1e3:9.2f} ms  {selection.name}")
