"""The convolutions of `tilewright demo`: the three directions, grouped and depthwise, one fused."""

from __future__ import annotations

from tilewright.ops.demo import Demo

_LAYER = {"batch": 1, "channels": 32, "filters": 32, "size": "28x28", "window": "3", "padding": "1"}

DEMO = Demo(
    pools=(
        ("default", {"variants": ("forward", "backward_data", "backward_weight")}),
        ("tiny", {"datatypes": ("bf16",)}),
        ("tiny", {"epilogues": ("Relu",), "num_d": (1,)}),
    ),
    problems=(
        _LAYER,
        {**_LAYER, "variant": "backward_data"},
        {**_LAYER, "variant": "backward_weight"},
        {**_LAYER, "groups": 32},
        {**_LAYER, "stride": "2", "channels": 3},
        {**_LAYER, "epilogue": "Relu", "num_d": 1},
        {**_LAYER, "datatype": "bf16"},
        {**_LAYER, "layout": "nchw"},
    ),
)
