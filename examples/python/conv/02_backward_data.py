"""dgrad: the gradient of a convolution with respect to its input, which is a transposed convolution.

Several input sizes give one output size where the stride is over 1, so the shape of the input is an argument.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device, to_host
from _exact import Convolution

given = options(__doc__, stride=2)
rng = np.random.default_rng(1)
geometry = Convolution(stride=given.stride, padding=1)
w = normal(rng, 32, 3, 3, 16)
W = to_device(w)

for size in (13, 14):
    input_shape = (2, size, size, 16)
    out = (size + 2 - 3) // given.stride + 1
    dy = normal(rng, 2, out, out, 32)
    dx = tw.conv_backward_data(to_device(dy), W, input_shape, stride=given.stride, padding=1)
    check(f"dgrad from {out}x{out} to {size}x{size}", dx, geometry.backward_data(dy, w, input_shape))

# The definition: <conv(x), dy> = <x, dgrad(dy)> for every x.
x = normal(rng, *input_shape)
y = tw.conv(*to_device(x, w), stride=given.stride, padding=1)
left = np.vdot(to_host(y).astype(np.float64), dy)
right = np.vdot(x.astype(np.float64), to_host(dx))
print(f"<conv(x), dy> = {left:.6f}, <x, dgrad(dy)> = {right:.6f}")
check("the two products", np.array([left], np.float32), np.array([right]), tolerance=1e-4)
