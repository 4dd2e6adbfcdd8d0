"""What the fuzzer found of calls on PyTorch's tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.fuzz.test_found import A, B, refused
from tilewright.errors import MachineError
from tilewright.runtime import torch_arrays

torch: Any = pytest.importorskip("torch")


def test_the_gradient_of_a_scalar_is_not_lost() -> None:
    alpha = torch.tensor(2.0, requires_grad=True)
    assert "detach" in refused("array-grad", lambda: tw.gemm(A, B, alpha=alpha)).remedy
    with torch.no_grad():
        assert (tw.gemm(A, B, alpha=alpha) == 12).all()
    assert (tw.gemm(A, B, alpha=alpha.detach()) == 12).all()
    assert (tw.gemm(A, B, alpha=np.array(2.0, object)) == 12).all()
    refused("scalar", lambda: tw.gemm(A, B, alpha=torch.empty((), device="meta")))


def test_a_type_is_no_tensor() -> None:
    refused("array-type", lambda: tw.gemm(torch.Tensor, B))
    refused("array-type", lambda: tw.pack(torch.Tensor))


def test_memory_that_no_machine_has() -> None:
    for m, n in ((2**25, 2**25), (2**30, 2**29)):
        a, b = torch.empty(m, 0), torch.empty(0, n)
        refused("memory", lambda a=a, b=b: tw.matmul(a, b), MachineError)
    wide = torch.ones(3, 1).expand(3, 2**39)
    refused("memory", lambda: tw.matmul(wide, wide.T, copy="allow"), MachineError)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_the_error_of_complex_tensors_warns_of_nothing(name: str) -> None:
    a = torch.zeros((4, 6), dtype=getattr(torch, name))
    torch_arrays._converts.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "apart" in refused("array-dtype", lambda: tw.gemm(a, B)).remedy


@pytest.mark.parametrize("name", ["quint2x4", "qint8"])
def test_memory_of_a_quantized_type_that_was_never_quantized(name: str) -> None:
    """PyTorch has no quantizer to ask there, and says so by an assertion of its own."""
    a = torch.empty((4, 6), dtype=getattr(torch, name))
    assert "dequantize()" in refused("array-dtype", lambda: tw.gemm(a, B)).remedy
