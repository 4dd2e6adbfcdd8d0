"""The float64 references: against PyTorch and SciPy, and judging by them finds what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conv.drawing import array, convolutions
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.reference import error_bound, exact, from_rows, reference, rows_of, sums, verify
from tilewright.runtime.bindings.conv import BINDING
from tilewright.runtime.bindings.conv.samples import named

Array = np.ndarray[Any, Any]


def operands(problem: ConvProblem) -> dict[str, Any]:
    shapes = (problem.x_shape, problem.w_shape, problem.y_shape)
    made = {
        name: array(seed, shape, dtype=np.float64) for seed, (name, shape) in enumerate(zip("xwy", shapes, strict=True))
    }
    return {**made, "ds": ()}


def whole(problem: ConvProblem, given_: dict[str, Any]) -> Array:
    found = sums(problem, given_["x"], given_["w"], given_["y"])
    return from_rows(problem, found)


def test_by_hand() -> None:
    """One image of 1 2 3 4 with a window of 1 10: each result can be read off."""
    p = ConvProblem(1, 1, 1, (4,), (2,), before=(1,), after=(0,))
    x, w = np.array([1.0, 2, 3, 4]).reshape(p.x_shape), np.array([1.0, 10]).reshape(p.w_shape)
    y = whole(p, {"x": x, "w": w, "y": x})
    assert y.ravel().tolist() == [10, 21, 32, 43]
    dy = np.array([1.0, 0, 0, 100]).reshape(p.y_shape)
    dx = whole(replace(p, variant="backward_data"), {"x": x, "w": w, "y": dy})
    assert dx.ravel().tolist() == [10, 0, 100, 1000]
    dw = whole(replace(p, variant="backward_weight"), {"x": x, "w": w, "y": dy})
    assert dw.ravel().tolist() == [300, 401]


@settings(max_examples=60)
@given(convolutions())
def test_against_pytorch(problem: ConvProblem) -> None:
    torch = pytest.importorskip("torch")
    if problem.batch == 0:
        problem = replace(problem, batch=1, x_strides=(), y_strides=())
    p, given_ = problem, operands(problem)
    x, w, y = (torch.from_numpy(np.moveaxis(given_[name], -1, 1).copy()).requires_grad_() for name in "xwy")
    pads = [one for pair in reversed(list(zip(p.before, p.after, strict=True))) for one in pair]
    padded = torch.nn.functional.pad(x, pads)
    convolve = getattr(torch.nn.functional, f"conv{len(p.size)}d")
    result = convolve(padded, w, stride=p.stride, dilation=p.dilation, groups=p.groups)
    result.backward(y.detach())
    expected = {"forward": result, "backward_data": x.grad, "backward_weight": w.grad}[p.variant]
    assert np.array_equal(whole(p, given_), np.moveaxis(expected.detach().numpy(), 1, -1))


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_against_scipy(seed: int, rank: int) -> None:
    signal = pytest.importorskip("scipy.signal")
    draw = np.random.default_rng(seed)
    size, window = tuple(draw.integers(4, 8, rank)), tuple(draw.integers(1, 4, rank))
    p = ConvProblem(2, 3, 2, tuple(map(int, size)), tuple(map(int, window)))
    given_ = operands(p)
    expected = np.zeros(p.y_shape)
    for n in range(p.batch):
        for k in range(p.filters):
            for c in range(p.channels):
                expected[n, ..., k] += signal.correlate(given_["x"][n, ..., c], given_["w"][k, ..., c], mode="valid")
    assert np.allclose(whole(p, given_), expected, rtol=0, atol=1e-9)


@given(convolutions())
def test_the_three_directions_are_one_bilinear_form(problem: ConvProblem) -> None:
    """sum(y * conv(x, w)) = sum(x * data(y, w)) = sum(w * weight(x, y)): exactly, in whole numbers."""
    given_ = operands(problem)
    found = [
        float(np.sum(given_[name] * whole(replace(problem, variant=variant), given_)))
        for name, variant in (("y", "forward"), ("x", "backward_data"), ("w", "backward_weight"))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("variant", ["forward", "backward_data", "backward_weight"])
def test_some_rows_are_those_of_all(variant: str) -> None:
    p = ConvProblem(2, 6, 10, (9, 8), (3, 2), 2, (2, 1), variant=variant)
    given_ = operands(p)
    everything = rows_of(p, whole(p, given_))
    some = np.array([0, 3, 4])
    assert np.array_equal(sums(p, given_["x"], given_["w"], given_["y"], some), everything[some])
    assert np.array_equal(from_rows(p, everything), whole(p, given_))


def test_a_large_problem_is_sampled_and_still_found_wrong() -> None:
    p = ConvProblem(1, 64, 64, (128, 128), (3, 3), before=(1, 1), dtype="int8")
    assert p.flops > 1e9
    p = replace(p, size=(256, 256), x_strides=(), y_strides=())
    made = BINDING.sample(p)
    result = np.zeros(p.y_shape, np.int32)
    check = verify(p, {**named(p, made), "y": None}, result)
    assert not check.ok
    assert 0 < check.rows_checked < p.gemm[0]


def test_fused_work_is_part_of_it() -> None:
    p = ConvProblem(1, 2, 3, (4, 4), (1, 1), epilogue="MultiDAdd", num_d=2, full_d=1)
    x, w = array(0, p.x_shape), array(1, p.w_shape)
    bias, more = array(2, (1, 1, 1, 3)), array(3, p.y_shape)
    plain = np.einsum("nhwc,kc->nhwk", x, w[:, 0, 0])
    for epilogue, expected in (
        ("MultiDAdd", plain + bias + more),
        ("MultiDMultiply", plain * bias * more),
        ("Relu", np.maximum(plain + bias + more, 0)),
    ):
        found = reference(replace(p, epilogue=epilogue), {"x": x, "w": w, "y": None, "ds": (bias, more)})
        assert np.array_equal(found, expected.astype(np.float32))


def test_int8_sums_wrap_and_results_are_cut() -> None:
    p = ConvProblem(1, 140000, 1, (1,), (1,), dtype="int8")
    given_ = {"x": np.full(p.x_shape, -128, np.int8), "w": np.full(p.w_shape, -128, np.int8), "y": None, "ds": ()}
    total = 140000 * 128 * 128
    assert total > 2**31
    assert reference(p, given_).item() == total - 2**32
    assert reference(replace(p, dtype_out="int8", dtype_d="int8"), given_).item() == -128


@pytest.mark.parametrize("variant", ["forward", "backward_data", "backward_weight"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_bound_holds_fp32_sums_and_finds_a_term_that_is_missing(variant: str, dtype: str) -> None:
    p = ConvProblem(2, 8, 12, (7, 6), (3, 3), 2, before=(1, 1), variant=variant, dtype=dtype)
    made = BINDING.sample(p, 5)
    arrays = named(p, made)
    right = from_rows(p, exact(p, arrays).value)
    assert verify(p, arrays, right.astype(np.float32)).ok or dtype == "bf16"
    assert verify(p, arrays, reference(p, arrays)).ok
    found = exact(p, arrays)
    bound = from_rows(p, error_bound(p, found))
    # One product less, where they are all there.
    wrong = right + 0.5 * from_rows(p, found.products) / max(1, p.gemm[2])
    assert not verify(p, arrays, wrong.astype(np.float32)).ok or (dtype == "bf16" and bound.min() > 1e-2)
    poisoned = right.astype(np.float32)
    poisoned.flat[7] = np.nan
    assert not verify(p, arrays, poisoned).ok
