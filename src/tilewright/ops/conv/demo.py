"""The convolutions of `tilewright demo`: kinds of forward layers, channels-first memory, and gradients on the floor."""

from __future__ import annotations

from tilewright.ops.demo import Demo

_LAYER = {"batch": 1, "channels": 32, "filters": 32, "size": "28x28", "window": "3", "padding": "1"}
_SMALL = {**_LAYER, "channels": 8, "filters": 8, "size": "14x14"}

DEMO = Demo(
    pools=(("default", {"datatypes": ("fp32",)}),),
    problems=(
        _LAYER,
        {**_LAYER, "window": "1", "padding": "0"},
        {**_LAYER, "groups": 32},
        {**_LAYER, "stride": "2", "channels": 3},
        {**_LAYER, "layout": "nchw"},
        {**_SMALL, "variant": "backward_data"},
        {**_SMALL, "variant": "backward_weight"},
    ),
)
