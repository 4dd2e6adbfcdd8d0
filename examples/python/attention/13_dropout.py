"""Dropout: entries of the softmax are dropped by a counter-based generator, so a seed says which, on every target.

With the identity as v, the result is the weights themselves: that shows the mask which another call with this seed
uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, seqlen=64, percent=25, seed=1234)
rng = np.random.default_rng(11)
q, k, v = (normal(rng, 2, given.seqlen, 4, 64) for _ in range(3))
p = given.percent / 100
Q, K, V = to_device(q, k, v)

identity = np.tile(np.eye(given.seqlen, dtype=np.float32)[None, :, None], (2, 1, 4, 1))
dropped = to_host(tw.attention(Q, K, to_device(identity), dropout_p=p, seed=given.seed))
keep = (dropped.transpose(0, 2, 1, 3) != 0) / (1 - p)  # (B, H, Sq, Sk): 0 or 1 / (1 - p)
share = float((keep == 0).mean())
print(f"{share:.3f} of the entries are dropped, {p:.3f} was requested")
if abs(share - p) > 4 * np.sqrt(p * (1 - p) / keep.size):
    sys.exit("that is no sample of this probability")

o, lse = tw.attention(Q, K, V, dropout_p=p, seed=given.seed, return_lse=True)
expected = _exact.attention(q, k, v, keep=keep)
check("dropout", o, expected.o)
check("lse is that without dropout", lse, expected.lse)

# The same seed gives the same bits, another one does not; (seed, offset) is a place in one stream.
again, other = (to_host(tw.attention(Q, K, V, dropout_p=p, seed=seed)) for seed in (given.seed, (given.seed, 1)))
if not np.array_equal(again, to_host(o)) or np.array_equal(other, to_host(o)):
    sys.exit("the seed does not decide what is dropped")
