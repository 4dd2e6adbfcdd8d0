"""A sweep over batches, validated and timed: one kernel serves all, and large batches fill the machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, repeats=3)
rng = np.random.default_rng(28)
print("host time of whole calls, best of the repeats")
for batch in (1, 2, 5, 8):
    q = normal(rng, batch, 96, 4, 64)
    k, v = (normal(rng, batch, 96, 4, 64) for _ in range(2))
    Q, K, V = to_device(q, k, v)
    o = tw.attention(Q, K, V, causal=True)  # the first call of a kernel compiles it
    check(f"batch {batch}", o, _exact.attention(q, k, v, visible=np.tri(96, dtype=bool)).o)
    times = []
    for _ in range(given.repeats):
        start = time.perf_counter()
        tw.attention(Q, K, V, causal=True, out=o)
        to_host(o)  # waits for a GPU
        times.append(time.perf_counter() - start)
    problem = tw.AttentionProblem(batch, 4, 96, 96, 64, heads_kv=4, window_right=0)
    kernel = tw.Registry().select(problem).stages[0].spec.schedule.label()
    print(f"  {min(times) * 1e3:7.2f} ms {problem.flops / min(times) / 1e9:7.1f} GFLOP/s  {kernel}")
