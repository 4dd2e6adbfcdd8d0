"""Element types: fp16, bf16, fp8 and int8 inputs, the output type chosen, PyTorch tensors by DLPack."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw

Array = np.ndarray[Any, np.dtype[Any]]


def check(what: str, result: Array, exact: Array, allowed: float) -> None:
    error = float(np.abs(result.astype(np.float64) - exact).max() / max(1.0, float(np.abs(exact).max())))
    print(f"{what:<28} -> {result.dtype!s:<10} largest error {error:.1e} of the largest element")
    assert error <= allowed, f"{what} is wrong"


def floats() -> None:
    generator = np.random.default_rng(4)
    wide_a, wide_b = (generator.standard_normal(shape) for shape in ((48, 80), (80, 64)))
    for dtype, allowed in (
        (np.float16, 1e-3),
        (ml_dtypes.bfloat16, 8e-3),
        (ml_dtypes.float8_e4m3fn, 1e-5),  # the inputs are coarse, the sums are fp32
        (ml_dtypes.float8_e5m2, 1e-5),
    ):
        a, b = wide_a.astype(dtype), wide_b.astype(dtype)
        check(
            f"{np.dtype(dtype)} x {np.dtype(dtype)}",
            tw.gemm(a, b),
            a.astype(np.float64) @ b.astype(np.float64),
            allowed,
        )
    a, b = wide_a.astype(ml_dtypes.bfloat16), wide_b.astype(ml_dtypes.bfloat16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    check("bfloat16, out_dtype fp32", tw.gemm(a, b, out_dtype="fp32"), exact, 1e-5)


def integers() -> None:
    generator = np.random.default_rng(5)
    a, b = (generator.integers(-128, 128, shape, dtype=np.int8) for shape in ((48, 80), (80, 64)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    check("int8 x int8", tw.gemm(a, b), exact.astype(np.float64), 0.0)
    # Scaled back to int8: rounded to nearest even and clamped.
    small = tw.gemm(a, b, alpha=1 / 1024, out_dtype="int8")
    wanted = np.clip(np.rint(exact / 1024), -128, 127)
    check("int8 x int8 / 1024", small, wanted, 0.0)


def tensors() -> None:
    if find_spec("torch") is None:
        print("torch is not installed: tensors are not shown")
        return
    torch = import_module("torch")
    a, weight = torch.randn(16, 64, dtype=torch.bfloat16), torch.randn(32, 64, dtype=torch.bfloat16)
    result = tw.gemm(a, weight.T)  # no copies: the memory is torch's
    assert isinstance(result, torch.Tensor)
    assert torch.allclose(result.double(), a.double() @ weight.double().T, rtol=1e-2, atol=1e-1)
    print(f"torch {torch.__version__}: {tuple(result.shape)} {result.dtype}, as torch computes it in float64")


def main() -> None:
    floats()
    integers()
    tensors()


if __name__ == "__main__":
    main()
