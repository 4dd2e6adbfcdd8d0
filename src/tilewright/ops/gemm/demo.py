"""The GEMMs of `tilewright demo`: plain kernels of four types, one fused, one for packed weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ops.demo import Demo


def _numpy(problem: Any) -> Callable[[], object]:
    """NumPy on fp32 of the same sizes, whatever the problem's types are."""
    import numpy as np

    a, b = np.ones((problem.m, problem.k), np.float32), np.ones((problem.k, problem.n), np.float32)
    out = np.empty((problem.m, problem.n), np.float32)
    return lambda: np.matmul(a, b, out=out)


_SQUARE = {"m": 512, "n": 512, "k": 512, "layout": "rcr"}
_FEW_ROWS = {"m": 16, "n": 2048, "k": 2048, "layout": "rcr"}

DEMO = Demo(
    pools=(
        ("default", {"datatypes": ("fp32",), "layouts": ("rrr", "rcr")}),
        ("tiny", {"datatypes": ("fp16", "bf16", "int8"), "layouts": ("rcr",)}),
        (
            "tiny",
            {
                "datatypes": ("fp32",),
                "layouts": ("rcr",),
                "variants": ("multi_d",),
                "epilogues": ("Relu",),
                "num_d": (1,),
            },
        ),
        ("tiny", {"datatypes": ("fp32",), "layouts": ("rcr",), "variants": ("preshuffle",)}),
    ),
    problems=(
        {"m": 256, "n": 256, "k": 256},
        {"m": 1024, "n": 1024, "k": 1024},
        {"m": 509, "n": 251, "k": 127},
        _FEW_ROWS,
        {**_FEW_ROWS, "preshuffle": True},
        {**_SQUARE, "epilogue": "Relu", "num_d": 1},
        {**_SQUARE, "datatype": "bf16"},
        {**_SQUARE, "datatype": "fp16"},
        {**_SQUARE, "datatype": "int8"},
        {"m": 64, "n": 64, "k": 64, "layout": "crr"},
    ),
    rival="NumPy fp32",
    rival_call=_numpy,
)
