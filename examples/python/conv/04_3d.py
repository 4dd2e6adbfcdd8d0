"""3D convolution (video, volumes) in all three directions: the calls of 2D with one dimension more. 1D has one less."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device
from _exact import Convolution

given = options(__doc__, depth=5, size=8, channels=8, filters=16)
rng = np.random.default_rng(3)
geometry = Convolution(padding=1)
x = normal(rng, 1, given.depth, given.size, given.size, given.channels)  # (N, D, H, W, C)
w = normal(rng, given.filters, 3, 3, 3, given.channels)  # (K, T, R, S, C)
dy = normal(rng, 1, given.depth, given.size, given.size, given.filters)
X, W, DY = to_device(x, w, dy)

check("forward 3D", tw.conv(X, W, padding=1), geometry.forward(x, w))
check("dgrad 3D", tw.conv_backward_data(DY, W, x.shape, padding=1), geometry.backward_data(dy, w, x.shape))
check("wgrad 3D", tw.conv_backward_weight(X, DY, w.shape, padding=1), geometry.backward_weight(x, dy, w.shape))

# Sizes of their own for each dimension: a filter of 1x3x3 with stride (1, 2, 2) leaves the frames apart.
frames = tw.conv(X, to_device(w[:, :1]), stride=(1, 2, 2), padding=(0, 1, 1))
each = [Convolution(stride=2, padding=1).forward(x[:, d], w[:, 0]) for d in range(given.depth)]
check("1x3x3, stride (1, 2, 2)", frames, np.stack(each, axis=1))
