"""wgrad: the gradient of a convolution with respect to its filters, bitwise reproducible with `deterministic=True`.

wgrad sums over all pixels of a batch, so kernels split that sum (split-K). Partial sums are stored and added in a
fixed order; nothing is added atomically where `deterministic` is set.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device, to_host
from _exact import Convolution

given = options(__doc__, batch=4, size=14)
rng = np.random.default_rng(2)
geometry = Convolution(padding=1)
x, dy = normal(rng, given.batch, given.size, given.size, 16), normal(rng, given.batch, given.size, given.size, 32)
shape = (32, 3, 3, 16)
X, DY = to_device(x, dy)

first = tw.conv_backward_weight(X, DY, shape, padding=1, deterministic=True)
check("wgrad", first, geometry.backward_weight(x, dy, shape))
second = tw.conv_backward_weight(X, DY, shape, padding=1, deterministic=True)
if not np.array_equal(to_host(first), to_host(second)):
    sys.exit("two calls gave different bits")

print("the same bits twice")

# fp32 gradients of bf16 operands keep small updates.
x16, dy16 = x.astype(ml_dtypes.bfloat16), dy.astype(ml_dtypes.bfloat16)
X, DY = to_device(x16, dy16)
wide = tw.conv_backward_weight(X, DY, shape, padding=1, out_dtype="fp32")
check("wgrad of bf16 in fp32", wide, geometry.backward_weight(x16, dy16, shape))
