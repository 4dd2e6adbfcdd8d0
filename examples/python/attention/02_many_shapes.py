"""Many shapes through few kernels: a kernel is compiled for a head_dim and its features, never for lengths, heads or a
batch.

Shapes are drawn by `--seed`, with lengths 0 and 1 among them; a row without keys gives 0.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

given = options(__doc__, shapes=8, seed=1)
rng = np.random.default_rng(given.seed)
with tw.events.recorded() as heard:
    for number in range(given.shapes):
        batch, heads_kv, group = (int(size) for size in rng.integers(1, 4, 3))
        seqlen_q, seqlen_k = (0 if size < 0 else int(2**size) for size in rng.uniform(-0.5, 7, 2))
        if number == 0:
            seqlen_q, seqlen_k = 3, 0  # nothing to attend to
        q = normal(rng, batch, seqlen_q, heads_kv * group, 64)
        k, v = (normal(rng, batch, seqlen_k, heads_kv, 64) for _ in range(2))
        shape = f"batch {batch}, heads {heads_kv * group}/{heads_kv}, {seqlen_q} rows, {seqlen_k} keys"
        check(shape, tw.attention(*to_device(q, k, v)), _exact.attention(q, k, v).o)
kernels = {event.kernel for event in heard if isinstance(event, tw.events.Selected)}
print(f"{given.shapes} shapes, {len(kernels)} kernels")
