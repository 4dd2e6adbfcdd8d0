"""Operands of a GEMM on the GPU, the exact product they are checked against, and what PyTorch calls on them."""

from __future__ import annotations

from typing import Any

import torch
from _cuda_timing import Clock, Run

from tilewright.ops.gemm import GemmProblem

TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "int8": torch.int8,
    "int32": torch.int32,
    "fp8_e4m3": torch.float8_e4m3fn,
}
OUTPUTS = {"fp8_e4m3": "bf16", "tf32": "fp32", "int8": "int32"}  # of the others: the same type
OUTPUT_ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-23, "int32": 0.0}
# What the products and sums may be off, of the sum of all |a b|: sums in fp32, in any order; the tensor cores read
# tf32 with 10 bits and add fp8 products with about 14.
PRODUCT_ERROR = {"fp8_e4m3": 2.0**-10, "tf32": 2.0**-9, "int8": 0.0}
SUM_ERROR = 1e-5
PEER_ERROR = 0.02  # of a peer only mistakes of ours in calling it are looked for: it may add in bf16


def problem_of(m: int, n: int, k: int, dtype: str, layout: str = "rcr", batch: int = 1) -> GemmProblem:
    return GemmProblem(m, n, k, dtype, dtype_c=OUTPUTS.get(dtype, dtype), layout=layout, batch=batch)


class Wrong(Exception):
    """A kernel whose result is not the product."""


def _matrix(rows: int, columns: int, letter: str, dtype: str, device: str, batch: int) -> Any:
    """Fresh random numbers, by rows or by columns."""
    shape = (rows, columns) if letter == "r" else (columns, rows)
    shape = (batch, *shape) if batch > 1 else shape  # type: ignore[assignment]
    if dtype == "int8":
        made = torch.randint(-127, 128, shape, device=device, dtype=torch.int8)
    else:
        first = torch.bfloat16 if dtype.startswith("fp8") else TYPES[dtype]
        made = torch.randn(shape, device=device, dtype=first).to(TYPES[dtype])
    return made if letter == "r" else made.mT


class Operands:
    """Fresh random operands of a problem, and the exact product with its tolerance, made when first asked for."""

    def __init__(self, problem: GemmProblem, device: str) -> None:
        p = self.problem = problem
        self.a = _matrix(p.m, p.k, p.layout[0], p.dtype_a, device, p.batch)
        self.b = _matrix(p.k, p.n, p.layout[1], p.dtype_b, device, p.batch)
        out = (p.batch, p.m, p.n) if p.batch > 1 else (p.m, p.n)
        self.out = torch.empty(out, device=device, dtype=TYPES[p.dtype_c])
        self._exact: tuple[Any, Any] | None = None

    def exact(self) -> tuple[Any, Any]:
        if self._exact is None:
            p = self.problem
            wide = torch.bfloat16 if p.dtype_a.startswith("fp8") else self.a.dtype  # fp8 fits into any wider type
            a, b = (one.to(wide).double() for one in (self.a, self.b))
            value = a @ b
            part = PRODUCT_ERROR.get(p.dtype_a, SUM_ERROR)
            tolerance = (a.abs_() @ b.abs_()).mul_(part).add_(value.abs(), alpha=OUTPUT_ROUNDING[p.dtype_c])
            self._exact = value, tolerance
        return self._exact

    def check(self, name: str, run: Run, clock: Clock) -> None:
        self.out.fill_(-77 if self.out.dtype == torch.int32 else float("nan"))
        clock.wait()
        run()
        clock.wait()
        value, tolerance = self.exact()
        error = (self.out.double() - value).abs_()
        if not bool((error <= tolerance).all()):  # NaN is never within it
            bad = int((~(error <= tolerance)).sum())
            raise Wrong(f"{name} is wrong on {self.problem.describe()}: {bad} of {error.numel()} elements")

    def ours(self, kernel: Any) -> Run:
        return lambda: kernel(self.a, self.b, out=self.out)

    def peer(self) -> Run:
        """What PyTorch has for the problem, in its usual settings."""
        dtype = self.problem.dtype_a
        if dtype == "int8":
            return lambda: torch._int_mm(self.a, self.b, out=self.out)
        if dtype.startswith("fp8"):
            scale = torch.ones((), device=self.a.device)
            # Fast accumulation: our kernels keep their sums in the tensor cores too.
            return lambda: torch._scaled_mm(
                self.a, self.b, scale, scale, out_dtype=self.out.dtype, use_fast_accum=True, out=self.out
            )

        def multiply() -> None:
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            torch.matmul(self.a, self.b, out=self.out)

        return multiply

    def check_peer(self, name: str, run: Run, clock: Clock) -> None:
        """That a peer was asked for this product."""
        self.out.fill_(-77 if self.out.dtype == torch.int32 else float("nan"))
        clock.wait()
        run()
        clock.wait()
        value = self.exact()[0]
        off = float((self.out.double() - value).norm() / value.norm().clamp_min(1e-30))
        if not off <= PEER_ERROR:
            raise Wrong(f"{name} was asked for another product on {self.problem.describe()}: off by {off:.3g}")
