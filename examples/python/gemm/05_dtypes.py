"""Element types: fp16, bf16, fp8 and int8 inputs, fp32 or int32 accumulation, and an output type of your choice."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, normal, options, to_device

options(__doc__)
rng = np.random.default_rng(4)
wide_a, wide_b = normal(rng, 48, 80), normal(rng, 80, 64)

for dtype in (np.float16, ml_dtypes.float8_e4m3fn):
    a, b = wide_a.astype(dtype), wide_b.astype(dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    check(f"{np.dtype(dtype)} inputs", tw.gemm(*to_device(a, b)), exact)  # fp8 inputs give fp32

a, b = wide_a.astype(ml_dtypes.bfloat16), wide_b.astype(ml_dtypes.bfloat16)
exact = a.astype(np.float64) @ b.astype(np.float64)
check("bfloat16 inputs, out_dtype fp32", tw.gemm(*to_device(a, b), out_dtype="fp32"), exact)

# int8: int32 sums are exact; scaled back to int8 they are rounded to nearest even and clamped.
ints_a, ints_b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((48, 80), (80, 64)))
sums = ints_a.astype(np.int64) @ ints_b.astype(np.int64)
A, B = to_device(ints_a, ints_b)
check("int8 inputs", tw.gemm(A, B), sums)
requantized = np.clip(np.rint(sums / 1024), -128, 127)
check("int8 inputs, alpha 1/1024, out int8", tw.gemm(A, B, alpha=1 / 1024, out_dtype="int8"), requantized)

# PyTorch's tensors by DLPack: the memory stays PyTorch's, and the result is a tensor.
if find_spec("torch") is None:
    print("torch is not installed: tensors are not shown")
else:
    torch = import_module("torch")
    device = "cuda" if tw.Registry().kind != "cpu" else "cpu"
    x, weight = (torch.randn(rows, 64, dtype=torch.bfloat16, device=device) for rows in (16, 32))
    y = tw.gemm(x, weight.T)
    check("torch.bfloat16 tensors", y.float().cpu().numpy(), (x.double() @ weight.double().T).cpu().numpy(), 1.6e-2)
