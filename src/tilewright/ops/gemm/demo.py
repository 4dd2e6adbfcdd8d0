"""The GEMMs of `tilewright demo`: a square, few rows, odd sizes, a fused epilogue, two narrow types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ops.demo import Demo, torch_call, torch_device

_TORCH_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}


def _numpy(problem: Any, kind: str) -> Callable[[], object] | None:
    """NumPy in fp32, whatever the problem's type is: it has no faster one."""
    if kind != "cpu":
        return None
    import numpy as np

    a = np.ones((problem.m, problem.k), np.float32)
    b = np.ones((problem.n, problem.k), np.float32).T
    out = np.empty((problem.m, problem.n), np.float32)
    if problem.num_d == 0:
        return lambda: np.matmul(a, b, out=out)
    bias = np.ones(problem.n, np.float32)

    def fused() -> object:
        np.matmul(a, b, out=out)
        np.add(out, bias, out=out)
        return np.maximum(out, 0, out=out)

    return fused


def _torch(problem: Any, kind: str) -> Callable[[], object]:
    """PyTorch in the problem's own type."""
    import torch

    device = torch_device(kind)
    dtype = getattr(torch, _TORCH_TYPES[problem.dtype_a])
    a = torch.ones((problem.m, problem.k), dtype=dtype, device=device)
    b = torch.ones((problem.n, problem.k), dtype=dtype, device=device).T
    if problem.dtype_a == "int8":
        return torch_call(lambda: torch._int_mm(a, b), kind)
    if problem.num_d == 0:
        return torch_call(lambda: torch.mm(a, b), kind)
    bias = torch.ones(problem.n, dtype=dtype, device=device)
    return torch_call(lambda: torch.relu(torch.addmm(bias, a, b)), kind)


_SQUARE = {"m": 512, "n": 512, "k": 512, "layout": "rcr"}
_FEW_ROWS = {"m": 8, "n": 4096, "k": 4096, "layout": "rcr"}

DEMO = Demo(
    problems={
        "512x512x512 fp32": _SQUARE,
        "8x4096x4096 fp32": _FEW_ROWS,
        "8x4096x4096 bf16": {**_FEW_ROWS, "datatype": "bf16"},
        "127x131x137 fp32": {"m": 127, "n": 131, "k": 137, "layout": "rcr"},
        "512x512x512 fp32 +bias, relu": {**_SQUARE, "epilogue": "Relu", "num_d": 1},
        "512x512x512 int8": {**_SQUARE, "datatype": "int8"},
    },
    peers={"NumPy": _numpy, "PyTorch": _torch},
    peer_notes={"NumPy": "products in fp32"},
)
