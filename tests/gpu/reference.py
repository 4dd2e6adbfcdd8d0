"""The float64 reference and its bound as in `tilewright.ops.gemm.reference`, in PyTorch: on a GPU it costs nothing.

tests/test_gpu_suite.py holds it against that one on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.torch_here import torch
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.numerics import (
    ACTIVATION_ULPS,
    INT_RANGE,
    LARGEST,
    LIPSCHITZ,
    NARROW_BITS,
    SMALLEST,
    TINY32,
    U32,
    narrow_part,
)

TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "int32": torch.int32,
}

_ACTIVATIONS: dict[str, Any] = {
    "Relu": torch.relu,
    "Gelu": lambda x: 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "FastGelu": lambda x: 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
    "Silu": lambda x: x * torch.sigmoid(x),
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}


def wide(values: Any) -> Any:
    """As float64; PyTorch takes fp8 there by way of float32."""
    small = values.element_size() == 1 and values.is_floating_point()
    return values.float().double() if small else values.double()


@dataclass(frozen=True)
class Expected:
    value: Any  # float64, before its last rounding
    bound: Any  # how far a right result may be from it


def expected(
    problem: GemmProblem,
    a: Any,
    b: Any,
    c: Any,
    ds: Sequence[Any],
    alpha: float,
    beta: float,
    narrow_sums: bool = False,
) -> Expected:
    """a (batch or 1, m, k), b (batch or 1, k, n), c and ds (batch, m, n), of their own types or float64."""
    p = problem
    a, b = wide(a), wide(b)
    total = a @ b
    whole = DTYPES[p.dtype_a].kind == "int"
    if whole:
        total = ((total.to(torch.int64) + 2**31) % 2**32 - 2**31).double()  # int32 sums wrap
        sizes = total.abs()
    else:
        sizes = a.abs() @ b.abs()
    x, products = alpha * total, abs(alpha) * sizes
    size = products
    if beta:
        x = x + beta * c.double()
        size = size + (beta * c.double()).abs()
    scaled: Any = 1.0
    for d in ds:
        if p.epilogue == "MultiDMultiply":
            x, scaled = x * d.double(), scaled * d.double().abs()
        else:
            x, size = x + d.double(), size + d.double().abs()
    value = _ACTIVATIONS[p.epilogue](x) if p.epilogue in _ACTIVATIONS else x
    return Expected(value, _bound(p, value, x, size * scaled, products * scaled, scaled, narrow_sums))


def _bound(p: GemmProblem, value: Any, before: Any, size: Any, products: Any, scaled: Any, narrow_sums: bool) -> Any:
    """`error_bound` of the other reference, and what fp8 sums lose."""
    if DTYPES[p.dtype_c].kind == "int":
        return 1e-12 * (1.0 + size)
    terms = 4 if DTYPES[p.dtype_a].kind == "int" else p.k + 3
    gamma = terms * U32 / (1.0 - terms * U32)
    if p.dtype_a == "tf32":
        gamma += (1 + DTYPES["tf32"].unit_roundoff) ** 2 - 1
    if narrow_sums and p.k > 1 << NARROW_BITS:  # shorter sums of the operands drawn here lose nothing
        gamma += narrow_part(p.k)
    error = gamma * products + (3 + p.num_d) * U32 * size + (p.k + 1) * TINY32 * scaled
    if p.epilogue in _ACTIVATIONS:
        error = LIPSCHITZ[p.epilogue] * error + ACTIVATION_ULPS * U32 * before.abs().clamp(min=1.0)
    return error + DTYPES[p.dtype_c].unit_roundoff * (value.abs() + error) + SMALLEST[p.dtype_c]


def outside(problem: GemmProblem, found: Any, want: Expected) -> Any:
    """True for each element that is not within the bound; NaN never is."""
    given, value, bound = wide(found), want.value, want.bound
    if problem.dtype_c in INT_RANGE:
        low, high = INT_RANGE[problem.dtype_c]
        least, most = ((value + sign * bound).round().clamp(low, high) for sign in (-1, 1))
        return ~((given >= least) & (given <= most))
    largest = LARGEST[problem.dtype_c]
    near = (given - value).abs() <= bound
    # Too large for the output: infinity of the right sign, or the largest number, is what rounding gives.
    over = (value.abs() + bound > largest) & (given.sign() == value.sign()) & (given.abs() >= largest * (1 - 2**-7))
    return ~(near | over)
