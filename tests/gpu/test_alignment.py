"""Products on a GPU of which an operand is not aligned to 16 bytes: right, whichever it is."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tests.gpu.torch_here import torch


def placed(rows: int, columns: int, off: int) -> Any:
    """A matrix that begins so many elements behind a multiple of 16 bytes."""
    memory = torch.randn(rows * columns + off, device="cuda").to(torch.bfloat16)
    return memory[off:].view(rows, columns)


@pytest.mark.parametrize("odd", ["", "a", "b", "c", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 1024), (136, 72, 80), (33, 40, 520)])
def test_one_operand_that_is_not_aligned(odd: str, m: int, n: int, k: int) -> None:
    torch.manual_seed(m + n + k)
    a, b = placed(m, k, int("a" in odd)), placed(n, k, int("b" in odd)).T
    out = placed(m, n, int("c" in odd))
    tw.gemm(a, b, out=out)
    exact = a.double() @ b.double()
    bound = torch.finfo(torch.bfloat16).eps * exact.abs() + 1e-6 * (a.double().abs() @ b.double().abs())
    assert ((out.double() - exact).abs() <= bound).all()
