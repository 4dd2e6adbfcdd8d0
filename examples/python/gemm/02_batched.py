"""Batches: leading dimensions broadcast as in np.matmul, and one B for all is not repeated in memory.

CUTLASS calls this a strided batched GEMM; a stride of 0 means that a matrix is shared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

given = options(__doc__, batch=4)
rng = np.random.default_rng(1)
a, b = normal(rng, given.batch, 33, 70), normal(rng, given.batch, 70, 45)
shared = normal(rng, 70, 45)
heads = normal(rng, 2, 3, 17, 70)  # two leading dimensions

a_there, b_there, shared_there, heads_there = to_device(a, b, shared, heads)
check("a[i] @ b[i]", tw.gemm(a_there, b_there), a.astype(np.float64) @ b)
check("a[i] @ b, one b for all", tw.gemm(a_there, shared_there), a.astype(np.float64) @ shared)
check("matmul of (2, 3, 17, 70)", tw.matmul(heads_there, shared_there), heads.astype(np.float64) @ shared)

problem = tw.GemmProblem(m=33, n=45, k=70, batch=given.batch, broadcast_b=True)
print(f"{problem.describe()}: {problem.flops / 1e6:.1f} MFLOP, {problem.bytes / 1e3:.0f} kB, b counted once")
