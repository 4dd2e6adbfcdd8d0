"""A padded batch: sequences of different lengths in one array, with `seqlens_q` and `seqlens_k`.

Memory behind the last key of a sequence is never read, so it may hold anything; rows behind the last one are not
written.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

options(__doc__)
rng = np.random.default_rng(13)
lengths = np.array([50, 7, 0, 23], np.int32)
q, k, v = (normal(rng, 4, 50, 4, 64) for _ in range(3))
for index, length in enumerate(lengths):
    k[index, length:] = v[index, length:] = np.nan  # nobody looks

out = to_device(np.full_like(q, 7.0))
tw.attention(
    *to_device(q, k, v), causal=True, seqlens_q=to_device(lengths), seqlens_k=to_device(lengths), out=out
)  # fmt: skip
found = to_host(out)
for index, length in enumerate(lengths):
    one = [array[index : index + 1, :length] for array in (q, k, v)]
    expected = _exact.attention(*one, visible=np.tril(np.ones((length, length), bool))).o
    check(f"sequence {index} of {length}", found[index : index + 1, :length], expected)
    if not (found[index, length:] == 7.0).all():
        sys.exit("rows behind the last one were written")
print("padding was neither read nor written")
