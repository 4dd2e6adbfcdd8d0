"""fp16 and bf16: scores and sums are fp32, the weights are rounded to the type of v, the result to `out_dtype`."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, seqlen=128)
rng = np.random.default_rng(3)
for name, dtype in (("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)):
    q, k, v = (normal(rng, 2, given.seqlen, 4, 64, dtype=dtype) for _ in range(3))
    Q, K, V = to_device(q, k, v)
    expected = _exact.attention(q, k, v)
    o, lse = tw.attention(Q, K, V, return_lse=True)
    check(name, o, expected.o)
    check("  lse stays fp32", lse, expected.lse)
    # Another type is another signature, and so another kernel.
    problem = tw.AttentionProblem(2, 4, given.seqlen, given.seqlen, 64, dtype_q=name, return_lse=True)
    print(f"  {tw.Registry().select(problem).name}")
# The weights are bf16 in any case, so an fp32 result has the error of these, not of its own type.
check("bf16, out_dtype fp32", tw.attention(Q, K, V, out_dtype="fp32"), expected.o, tolerance=8e-3)
