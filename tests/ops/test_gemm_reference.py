"""The reference: right by independent means, and strict enough to see a wrong kernel."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ops.fused import ACTIVATIONS
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.reference import error_bound, exact, reference, sizes_of, verify
from tilewright.ops.numerics import LIPSCHITZ, activation, erf, round_to


def arrays(p: GemmProblem, seed: int = 0, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kinds = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "int8": np.int8, "int32": np.int32}

    def make(shape: tuple[int, ...], dtype: str) -> Any:
        if dtype.startswith("int"):
            return rng.integers(-128, 128, shape).astype(kinds[dtype])
        return rng.standard_normal(shape).astype(kinds[dtype])

    return {
        "a": make((p.m, p.k), p.dtype_a),
        "b": make((p.k, p.n), p.dtype_b),
        "c": make((p.m, p.n), p.dtype_c),
        "ds": tuple(make((p.m, p.n), p.dtype_d) for _ in range(p.num_d)),
        "alpha": 1.0,
        "beta": 0.0,
        **changes,
    }


def test_erf_is_the_librarys() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, -0.0, 1e-300, np.inf, -np.inf]])
    expected = np.array([math.erf(one) for one in x])
    np.testing.assert_allclose(erf(x), expected, rtol=0, atol=5e-15)
    assert np.isnan(erf(np.array([np.nan]))[0])


SCALAR = {
    "Relu": lambda x: max(x, 0.0),
    "Gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "FastGelu": lambda x: 0.5 * x * (1 + math.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "Silu": lambda x: x / (1 + math.exp(-x)),
    "Sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "Tanh": math.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_their_formulas(name: str) -> None:
    x = np.linspace(-12, 12, 997)
    np.testing.assert_allclose(activation(name, x), [SCALAR[name](one) for one in x], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_no_steeper_than_their_constant(name: str) -> None:
    x = np.linspace(-10, 10, 200_001)
    slope = np.abs(np.diff(activation(name, x)) / np.diff(x)).max()
    assert LIPSCHITZ[name] * 0.97 < slope <= LIPSCHITZ[name]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_the_ends(name: str) -> None:
    low, high, nan = activation(name, np.array([-np.inf, np.inf, np.nan]))
    assert low == (-1 if name == "Tanh" else 0)
    assert high == (1 if name in ("Tanh", "Sigmoid") else np.inf)
    assert np.isnan(nan)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_the_reference_passes_its_own_check(dtype: str) -> None:
    p = GemmProblem(m=7, n=5, k=300, dtype_a=dtype)
    given_arrays = arrays(p)
    check = verify(p, given_arrays, reference(p, given_arrays))
    assert check.ok
    assert check.bound_ratio <= 1


@pytest.mark.parametrize("epilogue", ["PassThrough", "MultiDAdd", "MultiDMultiply", *ACTIVATIONS])
def test_one_wrong_element_is_seen(epilogue: str) -> None:
    p = GemmProblem(m=6, n=4, k=64, epilogue=epilogue, num_d=2 if epilogue.startswith("MultiD") else 0)
    given_arrays = arrays(p)
    right = reference(p, given_arrays)
    for wrong_value in (np.nan, np.inf, right[2, 3] + 1e-3, right[2, 3] - 1e-3):
        wrong = right.copy()
        wrong[2, 3] = wrong_value
        check = verify(p, given_arrays, wrong)
        assert not check.ok
        assert "(2, 3)" in check.detail


def test_a_dropped_product_is_seen_in_every_type() -> None:
    for dtype in ("fp32", "fp16", "bf16", "int8"):
        p = GemmProblem(m=8, n=8, k=40, dtype_a=dtype)
        given_arrays = arrays(p)
        short = {**given_arrays, "a": given_arrays["a"][:, :-1], "b": given_arrays["b"][:-1]}
        assert not verify(p, given_arrays, reference(p, short)).ok, dtype


def test_float32_sums_in_any_order_are_within_the_bound() -> None:
    p = GemmProblem(m=4, n=4, k=4000)
    given_arrays = arrays(p)
    a, b = given_arrays["a"], given_arrays["b"]
    forward = np.zeros((4, 4), np.float32)
    backward = np.zeros((4, 4), np.float32)
    for k in range(p.k):
        forward += a[:, k : k + 1] * b[k : k + 1]
        backward += a[:, p.k - 1 - k : p.k - k] * b[p.k - 1 - k : p.k - k]
    assert verify(p, given_arrays, forward).ok
    assert verify(p, given_arrays, backward).ok


def test_the_bound_grows_with_k_and_with_the_output_type() -> None:
    def bound(k: int, dtype_c: str) -> float:
        p = GemmProblem(m=1, n=1, k=k, dtype_c=dtype_c)
        ones = {"a": np.ones((1, k)), "b": np.ones((k, 1)), "c": None, "ds": (), "alpha": 1.0, "beta": 0.0}
        return float(error_bound(p, exact(p, ones))[0, 0]) / k

    assert bound(10, "fp32") < bound(1000, "fp32") < bound(10, "fp16") < bound(10, "bf16")
    assert bound(1000, "fp32") < 1100 * 2**-24


@given(st.floats(-1000, 1000, allow_nan=False))
def test_integers_round_to_even_and_clamp(x: float) -> None:
    assert int(round_to(np.array([x]), "int8")[0]) == max(-128, min(127, round(x)))


def test_integer_results_are_exact_but_for_ties() -> None:
    p = GemmProblem(m=3, n=3, k=5, dtype_a="int8", dtype_c="int8")
    given_arrays = arrays(p, alpha=0.5)
    right = reference(p, given_arrays)
    assert verify(p, given_arrays, right).ok
    near = np.clip(right.astype(int) + 1, -128, 127).astype(np.int8)
    assert not verify(p, given_arrays, near).ok


def test_int32_sums_wrap() -> None:
    k = 140_000
    p = GemmProblem(m=1, n=1, k=k, dtype_a="int8")
    full = {
        "a": np.full((1, k), -128, np.int8),
        "b": np.full((k, 1), -128, np.int8),
        "c": None,
        "ds": (),
        "alpha": 1.0,
        "beta": 0.0,
    }
    assert reference(p, full)[0, 0] == (k * 2**14 + 2**31) % 2**32 - 2**31


def test_nan_and_infinity_must_be_in_their_places() -> None:
    p = GemmProblem(m=3, n=3, k=3)
    given_arrays = arrays(p)
    given_arrays["a"][0, 1] = np.inf
    given_arrays["b"][2, 2] = np.nan
    with np.errstate(invalid="ignore"):
        right = given_arrays["a"] @ given_arrays["b"]
    assert verify(p, given_arrays, right).ok
    for place, value in (((0, 0), 5.0), ((0, 0), np.nan), ((1, 2), 0.0), ((1, 1), np.inf)):
        wrong = right.copy()
        wrong[place] = value
        assert not verify(p, given_arrays, wrong).ok, (place, value)


def test_results_too_large_for_the_output_may_be_infinite() -> None:
    p = GemmProblem(m=1, n=1, k=4, dtype_a="fp32", dtype_c="fp16")
    big = {"a": np.full((1, 4), 300.0), "b": np.full((4, 1), 300.0), "c": None, "ds": (), "alpha": 1.0, "beta": 0.0}
    assert verify(p, big, np.array([[np.inf]], np.float16)).ok
    assert verify(p, big, np.array([[65504]], np.float16)).ok
    assert not verify(p, big, np.array([[-np.inf]], np.float16)).ok
    assert not verify(p, big, np.array([[1.0]], np.float16)).ok


def test_rows_of_large_problems_are_sampled_with_both_ends() -> None:
    p = GemmProblem(m=3000, n=4, k=2)
    import dataclasses

    huge = dataclasses.replace(p, k=p.k)
    given_arrays = arrays(huge)
    right = reference(huge, given_arrays)
    from tilewright.ops.gemm import reference as module

    limit, module.FULL_CHECK_FLOPS = module.FULL_CHECK_FLOPS, 1000.0
    try:
        check = verify(huge, given_arrays, right)
        assert check.ok
        assert 64 < check.rows_checked < 200
        for row in (0, 15, 2984, 2999):
            wrong = right.copy()
            wrong[row, 0] += 1
            assert not verify(huge, given_arrays, wrong).ok
    finally:
        module.FULL_CHECK_FLOPS = limit


def test_subnormal_inputs_of_bf16_may_count_as_zero() -> None:
    """x86's dot product of pairs takes them so; found by the fuzzer, as a result of 0 that the bound refused."""
    p = GemmProblem(m=1, n=1, k=1, dtype_a="bf16")
    huge, tiny = (np.full((1, 1), one, ml_dtypes.bfloat16) for one in (3e38, 2.0**-128))
    given = arrays(p, a=huge, b=tiny)
    assert verify(p, given, reference(p, given))
    assert verify(p, given, np.zeros((1, 1), ml_dtypes.bfloat16))
    given = arrays(p, a=huge, b=np.full((1, 1), 2.0**-126, ml_dtypes.bfloat16))
    assert not verify(p, given, np.full((1, 1), 1e-3, ml_dtypes.bfloat16) + reference(p, given) * 4)
    single = GemmProblem(m=1, n=1, k=1)
    given = arrays(single, a=huge.astype(np.float32), b=tiny.astype(np.float32))
    assert not verify(single, given, np.zeros((1, 1), np.float32))


def test_what_is_flushed_is_scaled_by_alpha() -> None:
    p = GemmProblem(m=1, n=1, k=1)
    given = arrays(p, a=np.full((1, 1), 2.0**-100, np.float32), b=np.full((1, 1), 2.0**-27, np.float32), alpha=2.0**120)
    assert verify(p, given, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("scale", [1.0, 1e-22, 1e20])
def test_sizes_from_fp32_are_never_too_small_and_hardly_too_large(scale: float) -> None:
    """|A||B| is taken from fp32 where that cannot overflow; the bound stays one."""
    draw = np.random.default_rng(11)
    for m, n, k in ((5, 7, 1), (33, 20, 3000), (1, 3, 40_000)):
        a, b = ((draw.standard_normal(shape) * scale).astype(np.float32) for shape in ((m, k), (k, n)))
        true = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        found = sizes_of(a, b)
        assert (found >= true).all()
        assert (found <= true * (1 + 3 * k * 2.0**-24) + 3 * k * 2.0**-126).all()


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 3, 5000, 700), (2, 64, 777, 300), (1, 65, 40, 9), (3, 1, 1, 1)])
def test_products_by_columns_are_products(layout: str, batch: int, m: int, n: int, k: int) -> None:
    """Few rows are multiplied with a part of B at a time."""
    draw = np.random.default_rng(2)
    a = draw.standard_normal((batch, m, k)).astype(np.float32)
    b = np.asarray(draw.standard_normal((k, n)).astype(ml_dtypes.bfloat16), order=layout)[None]  # type: ignore[call-overload]
    p = GemmProblem(m, n, k)
    found = exact(p, {"a": a, "b": b, "c": None, "ds": (), "alpha": 1.0, "beta": 0.0})
    wide = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(found.value, wide[0] @ wide[1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.products, np.abs(wide[0]) @ np.abs(wide[1]), rtol=1e-4)
