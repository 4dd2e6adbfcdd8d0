"""Convolutions of patches: windows side by side, as where an image becomes tokens (ViT: 16 x 16 of 3 channels).

The pixels of one row of a patch are contiguous in channels-last memory, and so are those of a filter: they are one
pixel of more channels.  The same memory is then a convolution of fewer taps, whose channels kernels can copy and
multiply in whole vectors.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import dtype
from tilewright.ops.conv.problem import ConvProblem

VECTOR_BYTES = 16


def joined_patches(problem: ConvProblem) -> ConvProblem:
    """The same convolution with each row of a patch as one pixel, where that makes whole vectors of odd channels."""
    p = problem
    taps = p.window[-1] if p.window else 1
    if taps < 2 or p.groups != 1 or (p.stride[-1], p.dilation[-1], p.before[-1], p.after[-1]) != (taps, 1, 0, 0):
        return p
    element = dtype(p.dtype).bytes
    if p.channels * element % VECTOR_BYTES == 0 or taps * p.channels * element % VECTOR_BYTES or p.size[-1] % taps:
        return p
    side_by_side = (p.channels, 1)
    if p.x_strides[-2:] != side_by_side or p.w_strides[-2:] != side_by_side:
        return p
    channels = taps * p.channels
    return replace(
        p,
        channels=channels,
        size=(*p.size[:-1], p.size[-1] // taps),
        window=(*p.window[:-1], 1),
        stride=(*p.stride[:-1], 1),
        x_strides=(*p.x_strides[:-2], channels, 1),
        w_strides=(*p.w_strides[:-2], channels, 1),
    )
