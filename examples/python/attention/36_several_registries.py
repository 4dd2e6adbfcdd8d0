"""Several registries in one process: kernels of one do not leak into another, and targets that are not here can be
planned.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

options(__doc__)
problem = tw.AttentionProblem(1, 8, 16, 128, 64, heads_kv=2, num_splits=1)
proposed = tw.Registry().candidates(problem)
registries = {spec.schedule.pipeline: tw.Registry(specs=[spec]) for spec in proposed[:2]}
registries["all"] = tw.Registry()

rng = np.random.default_rng(33)
q = normal(rng, 1, 16, 8, 64)
k, v = (normal(rng, 1, 128, 2, 64) for _ in range(2))
Q, K, V = to_device(q, k, v)
for name, registry in registries.items():
    selection = registry.select(problem).stages[0]
    o = registry.run("attention", Q, K, V, num_splits=1)
    check(f"{name}: {selection.spec.schedule.label()}", o, _exact.attention(q, k, v).o)
    if name != "all" and selection.spec.digest not in {spec.digest for spec in registry.specs()}:
        sys.exit("a registry selected a kernel of another one")

# A decode step in bf16 on other targets: selected and estimated, not compiled.
decode = tw.AttentionProblem(8, 32, 1, 8192, 128, heads_kv=8, dtype_q="bf16")
for target in ("x86_64_v3", "sm_80", "sm_90a", "gfx942"):
    planned = tw.Registry(target).select(decode)
    print(f"{target:<10} stages: {len(planned.stages)} {planned.seconds * 1e6:10.0f} us  {planned.stages[0].name}")
