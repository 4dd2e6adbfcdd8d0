"""A 2D convolution, forward, with bias, residual and activation fused; NHWC by default, NCHW for PyTorch's order.

`layout` only names the order of dimensions. Memory is read as it lies: a channels_last tensor is never transposed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device
from _exact import Convolution

given = options(__doc__, batch=2, channels=16, filters=32, size=14)
rng = np.random.default_rng(0)
x = normal(rng, given.batch, given.size, given.size, given.channels)  # (N, H, W, C)
w = normal(rng, given.filters, 3, 3, given.channels)  # (K, R, S, C)
bias = normal(rng, given.filters)
residual = normal(rng, given.batch, given.size, given.size, given.filters)
X, W, BIAS, RESIDUAL = to_device(x, w, bias, residual)

exact = Convolution(padding=1).forward(x, w)
check("3x3, padding 1", tw.conv(X, W, padding=1), exact)
fused = tw.conv(X, W, BIAS, padding=1, residual=RESIDUAL, epilogue="relu")
check("relu(conv + bias + residual)", fused, np.maximum(exact + bias + residual, 0))
check("stride 2", tw.conv(X, W, stride=2, padding=1), Convolution(stride=2, padding=1).forward(x, w))

# PyTorch's order of dimensions, in contiguous memory.
X, W = to_device(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.ascontiguousarray(w.transpose(0, 3, 1, 2)))
check("layout nchw", tw.conv(X, W, padding=1, layout="nchw"), exact.transpose(0, 3, 1, 2))

# A pair (before, after) for each dimension pads one side only.
causal = Convolution(padding=2).forward(x, w)[:, : given.size, : given.size]
check("padding ((2, 0), (2, 0))", tw.conv(*to_device(x, w), padding=((2, 0), (2, 0))), causal)
