"""Layouts: (B, S, H, D) and (B, H, S, D), q k v in one array, and any strides with a contiguous last dimension."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

options(__doc__)
rng = np.random.default_rng(2)
batch, seqlen, heads, head_dim = 2, 64, 4, 64
qkv = normal(rng, batch, seqlen, 3, heads, head_dim)  # what one projection writes
q, k, v = (qkv[:, :, part] for part in range(3))  # views with a stride of 3 * heads * head_dim
expected = _exact.attention(q, k, v).o

check("views of one qkv array", tw.attention(*to_device(q, k, v)), expected)

# PyTorch's SDPA has heads before rows. The kernel is the same: only strides differ.
first = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
o = tw.attention(*to_device(*first), layout="bhsd")
check("layout bhsd", o, expected.transpose(0, 2, 1, 3))

# V as (B, H, D, S), as some kernels of CK take it: here the last dimension is contiguous, so a copy is asked for.
columns = np.ascontiguousarray(v.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
if tw.Registry().kind == "cpu":
    try:
        tw.attention(q, k, columns)
    except tw.errors.ProblemError as error:
        print(f"not without being asked: [{error.rule}] {error.remedy}")
    check("column-major v, copied", tw.attention(q, k, columns, copy="allow"), expected)
