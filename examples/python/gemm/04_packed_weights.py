"""Weights packed once and used in every call: what a server does with the weights of a model.

`tw.pack` stores B in the order in which one kernel reads it (CK: preshuffle), so that calls skip the rearrangement.
That matters most where A has few rows, because reading B is then nearly all the work.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

given = options(__doc__, size=512, repeats=10)
rng = np.random.default_rng(3)
weights = normal(rng, given.size, given.size, dtype=ml_dtypes.bfloat16)  # (out, in), as nn.Linear has it
W = to_device(weights.T)
packed = tw.pack(W, m=64)
print(packed)


def median_us(call: Callable[[], object]) -> float:
    times = []
    for _ in range(given.repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


for rows in (1, 64):
    x = normal(rng, rows, given.size, dtype=ml_dtypes.bfloat16)
    X = to_device(x)
    out = tw.gemm(X, packed)
    check(f"{rows} rows, packed weights", out, x.astype(np.float64) @ weights.T.astype(np.float64))
    plain = median_us(partial(tw.gemm, X, W, out=out))
    print(f"  a call takes {median_us(partial(tw.gemm, X, packed, out=out)):.0f} us, not packed {plain:.0f} us")

# Packed weights know their type: another one is refused, not misread.
try:
    tw.gemm(to_device(np.ones((4, given.size), np.float16)), packed)
except tw.errors.ProblemError as error:
    print(f"refused: [{error.rule}]")
else:
    sys.exit("fp16 rows were accepted for weights packed for bf16")
