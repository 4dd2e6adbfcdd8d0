"""A convolution as the selection library takes it (`include/tilewright/select/conv.h`)."""

from __future__ import annotations

from tilewright.dtypes import DTYPES
from tilewright.ops.conv import features
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.native import NativeFeatures

_EACH = ("size", "window", "stride", "dilation", "before", "after", "out")
PROBLEM = (
    "variant", "dims", "batch", "channels", "filters", "groups",
    *(f"{name}_{axis}" for name in _EACH for axis in ("0", "1", "2")),
    "x_image", "x_0", "x_1", "x_2", "x_channel", "w_filter", "w_0", "w_1", "w_2", "w_channel",
    "y_image", "y_0", "y_1", "y_2", "y_channel",
    "size", "size_out", "size_d", "num_d", "full_d", "plain", "aligned", "deterministic",
)  # fmt: skip
_VARIANTS = {"forward": 0, "backward_data": 1, "backward_weight": 2}  # `Variant` of conv.h
_SIZES = {name: dtype.bytes for name, dtype in DTYPES.items()}


def _strides(strides: Sizes, lacking: int) -> Sizes:
    """With those of the image for the axes that it lacks, which have one pixel."""
    return strides[:1] * (1 + lacking) + strides[1:]


def problem_numbers(p: ConvProblem) -> tuple[int, ...]:
    dims = len(p.size)
    lacking = 3 - dims
    ones, zeros = (1,) * lacking, (0,) * lacking
    return (
        _VARIANTS[p.variant], dims, p.batch, p.channels, p.filters, p.groups,
        *ones, *p.size, *ones, *p.window, *ones, *p.stride, *ones, *p.dilation, *zeros, *p.before, *zeros, *p.after,
        *ones, *p.out, *_strides(p.x_strides, lacking), *_strides(p.w_strides, lacking),
        *_strides(p.y_strides, lacking), _SIZES[p.dtype], _SIZES[p.dtype_out], _SIZES[p.dtype_d], p.num_d, p.full_d,
        p.num_d == 0 and p.epilogue == "PassThrough", p.aligned, p.deterministic,
    )  # fmt: skip


FEATURES = NativeFeatures(
    (features.PROBLEM, features.INTERACTION), ("parts", "depth", "intensity", "split", "merges", "results"), ()
)
FEATURES_HEADER, FEATURES_EXPORT = "tilewright/select/conv_features.h", "TW_SELECT_CONV_FEATURES"
