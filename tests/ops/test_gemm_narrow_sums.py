"""fp8 sums of 13 bits: what the bound says of them, and operands that need no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.reference import verify
from tilewright.ops.numerics import NARROW_BITS, NARROW_TERMS
from tilewright.runtime.bindings.gemm import samples

Array = np.ndarray[Any, Any]
FP8 = ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")


def cut(terms: Array, largest: Array) -> Array:
    """Every term rounded down to a multiple of the largest's exponent less 13 bits."""
    _, exponent = np.frexp(np.where(largest == 0, 1.0, largest))
    unit = np.ldexp(1.0, exponent - 1 - NARROW_BITS)
    return np.asarray(np.floor(terms / unit) * unit)


def narrow(a: Array, b: Array, start: int = 0) -> Array:
    """The product as such tensor cores add it: 32 products and the sum so far, aligned to the largest of them.

    `start` splits k in two chains, whose sums are added as they are.
    """
    chains = [slice(0, start), slice(start, a.shape[1])]
    whole = np.zeros((a.shape[0], b.shape[1]))
    for chain in chains:
        left, right = a[:, chain].astype(np.float64), b[chain].astype(np.float64)
        total = np.zeros_like(whole)
        for at in range(0, left.shape[1], NARROW_TERMS):
            products = left[:, at : at + NARROW_TERMS, None] * right[None, at : at + NARROW_TERMS]
            terms = np.concatenate([products, total[:, None]], axis=1)
            largest = np.abs(terms).max(axis=1, keepdims=True)
            sums = cut(terms, largest).sum(axis=1)
            total = cut(sums, np.abs(sums))
        whole = whole + total
    return whole


def operands(dtype: str, k: int, exact: bool) -> tuple[GemmProblem, dict[str, Any]]:
    problem = GemmProblem(5, 7, k, dtype, dtype_c="fp32", layout="rcr")
    return problem, samples.named(samples.sample(problem, seed=k, exact=exact))


def flat(one: Array) -> Array:
    return np.asarray(one[0])


@pytest.mark.parametrize("k", [32, 100, 1024, 8192])
def test_random_values_need_the_wide_bound(k: int) -> None:
    problem, made = operands("fp8_e4m3", k, exact=False)
    result = narrow(flat(made["a"]), flat(made["b"])).astype(np.float32)[None]
    assert not verify(problem, made, result), "these sums keep fewer bits than fp32: the usual bound would be a lie"
    assert verify(problem, made, result, narrow_sums=True)


@pytest.mark.parametrize("dtype", FP8)
@pytest.mark.parametrize(("k", "start"), [(1, 0), (32, 16), (1000, 352), (2048, 0), (8192, 4096), (65536, 96)])
def test_exact_operands_lose_nothing(dtype: str, k: int, start: int) -> None:
    problem, made = operands(dtype, k, exact=True)
    a, b = flat(made["a"]).astype(np.float64), flat(made["b"]).astype(np.float64)
    assert (np.abs(a) @ np.abs(b)).max() <= 2.0**NARROW_BITS
    result = narrow(a, b, start)
    np.testing.assert_array_equal(result, a @ b)
    assert verify(problem, made, result.astype(np.float32)[None])
    assert np.count_nonzero(result) > 0


@pytest.mark.parametrize("k", [64, 1024, 2048])
def test_a_product_left_out_of_exact_operands_is_found(k: int) -> None:
    problem, made = operands("fp8_e4m3", k, exact=True)
    a, b = flat(made["a"]).astype(np.float64), flat(made["b"]).astype(np.float64)
    at = int(np.flatnonzero(a[2] * b[:, 3])[-1])
    wrong = a @ b
    wrong[2, 3] -= a[2, at] * b[at, 3]
    check = verify(problem, made, wrong.astype(np.float32)[None])
    assert not check
    assert "(0, 2, 3)" in check.detail


def test_only_fp8_times_fp8_has_operands_of_its_own() -> None:
    for dtype_a, dtype_b in (("bf16", "bf16"), ("int8", "int8"), ("fp8_e4m3", "bf16")):
        problem = GemmProblem(4, 4, 64, dtype_a, dtype_b)
        usual, exact = (samples.sample(problem, 1, exact=one).operands for one in (False, True))
        assert all((usual[slot].view(np.uint8) == exact[slot].view(np.uint8)).all() for slot in (0, 1))
        assert not samples.may_be_narrow(problem)
