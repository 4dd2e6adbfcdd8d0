"""A first GEMM: two arrays in, one out; the layout is inferred from strides, the kernel is selected and compiled once.

python examples/python/gemm/01_basic.py --m 512
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

given = options(__doc__, m=200, n=100, k=300)
rng = np.random.default_rng(0)
a, b, weights = normal(rng, given.m, given.k), normal(rng, given.k, given.n), normal(rng, given.n, given.k)
a_there, b_there, weights_there = to_device(a, b, weights)

start = time.perf_counter()
e = tw.gemm(a_there, b_there)  # selects, compiles if the store has no such kernel, loads and runs
first = time.perf_counter() - start
start = time.perf_counter()
tw.gemm(a_there, b_there, out=e)  # finds the plan of the first call
second = time.perf_counter() - start
check("a @ b", e, a.astype(np.float64) @ b)

# nn.Linear keeps (out, in): a transposed view is another layout (rcr instead of rrr), not a copy.
check("a @ weights.T", tw.gemm(a_there, weights_there.T), a.astype(np.float64) @ weights.T)

selection = tw.Registry().select(tw.GemmProblem(m=given.m, n=given.n, k=given.k))
print(f"kernel  {selection.name}\ntier    {selection.tier}: {selection.reason}")
print(f"first call {first * 1e3:.1f} ms, second {second * 1e6:.0f} us")

# An error names the rule, the value and a remedy.
try:
    tw.gemm(a_there, weights_there)
except tw.errors.ProblemError as error:
    print(f"a mistake is answered with:\n{error}")
else:
    sys.exit("inner dimensions that differ were accepted")
