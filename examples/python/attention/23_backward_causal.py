"""Gradients of causal attention: the forward pass keeps o and lse, the backward pass computes the weights anew from
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, batch=2, seqlen=80, heads=4)
rng = np.random.default_rng(21)
q, k, v, do = (normal(rng, given.batch, given.seqlen, given.heads, 64) for _ in range(4))
Q, K, V, DO = to_device(q, k, v, do)

o, lse = tw.attention(Q, K, V, causal=True, return_lse=True)
gradients = tw.attention_backward(DO, Q, K, V, o, lse, causal=True)  # the keywords of the forward call
expected = _exact.attention_backward(do, q, k, v, visible=np.tri(given.seqlen, dtype=bool))
for name, gradient, exact in zip(("dq", "dk", "dv"), gradients, expected, strict=False):
    check(name, gradient, exact)

problem = tw.AttentionBackwardProblem(given.batch, given.heads, given.seqlen, given.seqlen, 64, window_right=0)
for stage in tw.Registry().select(problem).stages:
    print(f"stage {stage.spec.signature.family:<8} {stage.name}")
