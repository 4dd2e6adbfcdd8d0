"""Groups: grouped and depthwise convolution, and dilation. Depthwise has kernels of its own, which the selection
names.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device
from _exact import Convolution

given = options(__doc__, channels=32, size=12)
rng = np.random.default_rng(4)
x = normal(rng, 2, given.size, given.size, given.channels)
X = to_device(x)

for groups, name in ((4, "4 groups"), (given.channels, "depthwise")):
    w = normal(rng, given.channels, 3, 3, given.channels // groups)  # filters see the channels of their group only
    y = tw.conv(X, to_device(w), padding=1, groups=groups)
    check(name, y, Convolution(padding=1, groups=groups).forward(x, w))
    problem = tw.ConvProblem(
        2, given.channels, given.channels, (given.size,) * 2, (3, 3), before=(1, 1), groups=groups
    )  # fmt: skip
    print(f"  {tw.Registry().select(problem).name}")

# Atrous convolution: taps two pixels apart see 5x5 with nine weights.
w = normal(rng, 16, 3, 3, given.channels)
y = tw.conv(X, to_device(w), padding=2, dilation=2)
check("dilation 2", y, Convolution(padding=2, dilation=2).forward(x, w))

# The gradients take the same groups.
dy = normal(rng, *x.shape)
w = normal(rng, given.channels, 3, 3, 1)
dx = tw.conv_backward_data(to_device(dy), to_device(w), x.shape, padding=1, groups=given.channels)
check("depthwise dgrad", dx, Convolution(padding=1, groups=given.channels).backward_data(dy, w, x.shape))
