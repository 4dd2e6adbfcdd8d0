"""Deterministic gradients: only kernels that add every sum in a fixed order, so that two runs give the same bits.

dq is a sum over blocks of keys. Fast kernels on GPUs add these atomically, in an order that changes from run to run;
with `deterministic=True` partial sums are stored and added by a further stage. On CPUs all kernels are deterministic.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, seqlen=96, repeats=3)
rng = np.random.default_rng(25)
q, k, v, do = (normal(rng, 2, given.seqlen, 4, 64) for _ in range(4))
Q, K, V, DO = to_device(q, k, v, do)
o, lse = tw.attention(Q, K, V, causal=True, return_lse=True)

runs = []
for _ in range(given.repeats):
    gradients = tw.attention_backward(DO, Q, K, V, o, lse, causal=True, deterministic=True)
    runs.append([to_host(gradient) for gradient in gradients])
if not all(np.array_equal(first, other) for run in runs for first, other in zip(runs[0], run, strict=True)):
    sys.exit("two runs gave different bits")

# On a CPU not even the number of threads changes them.
if tw.Registry().kind == "cpu":
    with tw.settings.override(threads=1):
        alone = tw.attention_backward(DO, Q, K, V, o, lse, causal=True, deterministic=True)
    if not all(np.array_equal(first, other) for first, other in zip(runs[0], alone, strict=True)):
        sys.exit("one thread gave other bits")

expected = _exact.attention_backward(do, q, k, v, visible=np.tri(given.seqlen, dtype=bool))
for name, gradient, exact in zip(("dq", "dk", "dv"), runs[0], expected, strict=False):
    check(name, gradient, exact)
print(f"{given.repeats} runs, the same bits")
