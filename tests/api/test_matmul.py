"""Calls as people write them: `matmul` with NumPy's meaning, batches of any shape, a C that broadcasts, copies."""

from __future__ import annotations

import array
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.errors import ProblemError, RequestError, TilewrightError, UnknownNameError

Array = np.ndarray[Any, Any]
F32 = np.float32


def make(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(F32)  # sums of such numbers are exact


def refused(rule: str, call: Any, kind: type[TilewrightError] = ProblemError) -> TilewrightError:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.rule == rule, str(caught.value)
    assert caught.value.remedy
    return caught.value


SHAPES = [
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 3)),
    ((2, 4, 5), (5, 3)),
    ((4, 5), (2, 5, 3)),
    ((2, 4, 5), (2, 5, 3)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
    ((2, 3, 4, 5), (5, 3)),
    ((2, 3, 4, 5), (3, 5, 3)),
    ((2, 1, 3, 4, 5), (7, 1, 5, 2)),
    ((5,), (2, 3, 5, 4)),
    ((2, 3, 4, 5), (5,)),
    ((0, 4, 5), (5, 3)),
    ((0, 4, 5), (0, 5, 3)),
    ((2, 0, 5), (5, 3)),
    ((2, 4, 0), (0, 3)),
    ((3, 1, 4, 5), (1, 0, 5, 3)),
    ((1,), (1,)),
]


@pytest.mark.parametrize(("of_a", "of_b"), SHAPES)
def test_matmul_is_numpys(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    a, b = make(*of_a), make(*of_b, seed=1)
    expected = np.matmul(a, b)
    for _ in range(3):
        result = tw.matmul(a, b)
        assert type(result) is type(expected)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(result, expected)
    out = np.full(expected.shape, np.nan, F32)
    for _ in range(2):
        assert tw.matmul(a, b, out=out) is out
        np.testing.assert_array_equal(out, expected)


dims = st.sampled_from([0, 1, 2, 3, 4])


@given(st.data())
def test_matmul_of_anything_numpy_takes(data: st.DataObject) -> None:
    batch = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3)))
    m, n, k = (data.draw(dims) for _ in range(3))

    def operand(rows: int, columns: int) -> Array:
        lead = batch[data.draw(st.integers(0, len(batch))) :]
        lead = tuple(1 if data.draw(st.booleans()) else size for size in lead)
        x = make(*lead, columns, rows).swapaxes(-1, -2) if data.draw(st.booleans()) else make(*lead, rows, columns)
        order = data.draw(st.permutations(range(len(lead))))
        turned = np.ascontiguousarray(x.transpose(*order, len(lead), len(lead) + 1))
        return turned.transpose(*np.argsort(order), len(lead), len(lead) + 1) if data.draw(st.booleans()) else x

    a, b = operand(m, k), operand(k, n)
    np.testing.assert_array_equal(tw.matmul(a, b), np.matmul(a, b))
    np.testing.assert_array_equal(tw.gemm(a, b), np.matmul(a, b))


@pytest.mark.parametrize(
    ("of_a", "of_b", "rule"),
    [
        ((), (5,), "array-rank"),
        ((5,), (), "array-rank"),
        ((4,), (5,), "shape-k"),
        ((2, 4, 5), (3, 5, 3), "shape-batch"),
    ],
)
def test_what_matmul_refuses(of_a: tuple[int, ...], of_b: tuple[int, ...], rule: str) -> None:
    refused(rule, lambda: tw.matmul(make(*of_a), make(*of_b)))


def test_matmul_of_other_types_and_into_others() -> None:
    a, b = make(4, 5).astype(ml_dtypes.bfloat16), make(5, 3).astype(ml_dtypes.bfloat16)
    assert tw.matmul(a, b).dtype == ml_dtypes.bfloat16
    assert tw.matmul(a, b, out_dtype="float32").dtype == F32
    assert tw.matmul(a[0], b[:, 0], out_dtype=F32) == np.matmul(a[0].astype(F32), b[:, 0].astype(F32))
    refused("array-dtype", lambda: tw.matmul(np.ones((2, 2)), np.ones((2, 2))))


def test_vectors_of_gemm_are_sent_to_matmul() -> None:
    assert "matmul" in refused("array-rank", lambda: tw.gemm(make(4, 5), make(5))).remedy


# -- C -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 1), (1, 3), (4, 3), (2, 4, 3), (2, 1, 1), (1, 1, 1, 3)])
@pytest.mark.parametrize("beta", [None, 0, 1, 0.5, -2])
@pytest.mark.parametrize("epilogue", ["passthrough", "relu"])
def test_c_broadcasts_and_counts_once_unless_told_otherwise(shape: tuple[int, ...], beta: Any, epilogue: str) -> None:
    a, b, c = make(4, 5), make(5, 3, seed=1), make(*shape, seed=2)
    expected = a @ b + (1 if beta is None else beta) * c
    if epilogue == "relu":
        expected = np.maximum(expected, 0)
    if beta == 0:
        expected = np.broadcast_to(np.maximum(a @ b, 0) if epilogue == "relu" else a @ b, expected.shape)
    named = {} if beta is None else {"beta": beta}
    for _ in range(2):
        result = tw.gemm(a, b, c, epilogue=epilogue, **named)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)
        turned = np.full(expected.shape[:-2] + expected.shape[:-3:-1], np.nan, F32).swapaxes(-1, -2)
        result = tw.gemm(a, b, c, epilogue=epilogue, out=turned, copy="allow", **named)
        np.testing.assert_array_equal(result, expected)


def test_c_that_is_not_read_may_hold_anything_and_none_needs_no_beta() -> None:
    c = np.full((4, 3), np.nan, F32)
    np.testing.assert_array_equal(tw.gemm(make(4, 5), make(5, 3), c, beta=0), make(4, 5) @ make(5, 3))
    np.testing.assert_array_equal(tw.gemm(make(4, 5), make(5, 3), beta=0), make(4, 5) @ make(5, 3))
    refused("beta-without-c", lambda: tw.gemm(make(4, 5), make(5, 3), beta=1))


def test_c_beside_d_tensors() -> None:
    a, b, row, column, whole = make(4, 5), make(5, 3), make(3, seed=3), make(4, 1, seed=4), make(4, 3, seed=5)
    for c in (row, column, whole):
        for ds in ((row,), (row, whole), ()):
            expected = a @ b + c + sum(ds)
            epilogue = "add" if ds else "passthrough"
            np.testing.assert_array_equal(tw.gemm(a, b, c, ds=ds, epilogue=epilogue), expected)
            np.testing.assert_array_equal(tw.gemm(a, b, c, ds=ds, epilogue=epilogue, beta=2), expected + c)
        np.testing.assert_array_equal(tw.gemm(a, b, c, ds=(whole,), epilogue="multiply"), (a @ b + c) * whole)


def test_a_d_tensor_of_a_batch_of_batches() -> None:
    a, b, d = make(2, 3, 4, 5), make(5, 6), make(3, 1, 6)
    for _ in range(2):
        np.testing.assert_array_equal(tw.gemm(a, b, ds=(d,), epilogue="add"), a @ b + d)
    odd = make(2, 4, 3, 5).swapaxes(1, 2)  # batches that are not one in memory
    np.testing.assert_array_equal(tw.gemm(odd, b, ds=(d,), epilogue="add"), odd @ b + d)
    out = np.full((2, 4, 3, 6), np.nan, F32).swapaxes(1, 2)
    np.testing.assert_array_equal(tw.gemm(odd, b, d, ds=(d,), epilogue="add", out=out), odd @ b + 2 * d)


# -- copies ------------------------------------------------------------------------------------------------------------


def crooked(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 1, np.int8)
    made = memory[1:].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def in_records(x: Array) -> Array:
    record = np.zeros(x.shape[0], np.dtype([("x", np.int8), ("y", F32, x.shape[1:])]))
    record["y"] = x
    return record["y"]


@pytest.mark.parametrize(
    ("rule", "form"),
    [
        ("array-layout", lambda x: x[::-1]),
        ("array-layout", lambda x: x[:, ::-1]),
        ("array-layout", lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2]),
        ("array-layout", lambda x: np.broadcast_to(x[:1], x.shape)),
        ("array-byte-order", lambda x: x.astype(">f4")),
        ("array-alignment", crooked),
        ("array-strides", in_records),
    ],
    ids=["upside down", "backwards", "odd", "repeated", "swapped", "crooked", "fields"],
)
def test_inputs_that_need_a_copy_say_so_or_are_copied(rule: str, form: Any) -> None:
    a, b = form(make(4, 6)), make(6, 5)
    for _ in range(2):
        assert 'copy="allow"' in refused(rule, lambda: tw.gemm(a, b)).remedy
        np.testing.assert_array_equal(tw.gemm(a, b, copy="allow"), np.asarray(a, F32) @ b)
        np.testing.assert_array_equal(tw.matmul(a, b, copy="allow"), np.asarray(a, F32) @ b)
        np.testing.assert_array_equal(tw.gemm(b.T, a.T, copy="allow"), b.T @ np.asarray(a, F32).T)
    d = form(make(4, 5))
    np.testing.assert_array_equal(
        tw.gemm(make(4, 6), b, d, ds=(d,), epilogue="add", copy="allow"), make(4, 6) @ b + 2 * np.asarray(d, F32)
    )


def test_an_out_is_never_a_copy() -> None:
    for wrong in (np.zeros((8, 10), F32)[::2, ::2], crooked(make(4, 5)), make(4, 5)[::-1]):
        with pytest.raises(ProblemError):
            tw.gemm(make(4, 6), make(6, 5), out=wrong, copy="allow")
    refused("copy-name", lambda: tw.gemm(make(4, 6), make(6, 5), copy="always"))


# -- scalars, names, problems ------------------------------------------------------------------------------------------


def test_scalars_are_real_numbers() -> None:
    a, b = make(4, 6), make(6, 5)
    for two in (2, 2.0, F32(2), np.int64(2), np.array(2.0), np.array(2), Fraction(2), ml_dtypes.bfloat16(2)):
        np.testing.assert_array_equal(tw.gemm(a, b, alpha=two), 2 * (a @ b))
        np.testing.assert_array_equal(tw.gemm(a, b, make(4, 5), beta=two), a @ b + 2 * make(4, 5))
    for wrong in (np.ones(3), np.ones(1), [1.0], "1", 1j, np.complex64(1), True, np.True_, None, Decimal("nan")):
        if wrong is not None and not isinstance(wrong, Decimal):
            refused("scalar", lambda wrong=wrong: tw.gemm(a, b, make(4, 5), beta=wrong))
            refused("scalar", lambda wrong=wrong: tw.gemm(a, b, alpha=wrong))
    refused("scalar", lambda: tw.gemm(a, b, alpha=None))
    assert np.isnan(tw.gemm(a, b, alpha=float("nan"))).all()
    assert not np.isfinite(tw.gemm(a, b, alpha=float("inf"))).any()


def test_names_that_are_nearly_right() -> None:
    error = refused("epilogue-name", lambda: tw.gemm(make(4, 6), make(6, 5), epilogue="geluu"), UnknownNameError)
    assert "did you mean 'Gelu'" in error.remedy
    with pytest.raises(UnknownNameError, match="float32") as caught:
        tw.pack(make(6, 5), dtype_a="float32")
    assert "write 'fp32'" in caught.value.remedy


@pytest.mark.parametrize("thing", [None, 3, "gemm", tw.GemmProblem, np.ones(3), {"m": 1}])
def test_only_problems_can_be_explained(thing: Any) -> None:
    for ask in (tw.explain, tw.Registry().select, tw.Registry().measure):
        refused("problem-type", lambda ask=ask: ask(thing), RequestError)


def test_what_explain_is_told_must_mean_something() -> None:
    problem = tw.GemmProblem(m=4, n=4, k=4)
    for threads in (-1, 1.5, True, "2"):
        refused("threads", lambda threads=threads: tw.explain(problem, threads=threads), RequestError)
    refused("strict", lambda: tw.explain(problem, strict="no"), RequestError)  # type: ignore[arg-type]
    assert tw.explain(problem, threads=0).threads >= 1


def test_pack_takes_what_it_says() -> None:
    for wrong in (-1, 2.0, True, "4"):
        refused("pack-rows", lambda wrong=wrong: tw.pack(make(6, 5), m=wrong))
    refused("array-dtype", lambda: tw.pack(np.ones((6, 5), np.int64)))
    packed = tw.pack(make(6, 5), dtype_a="tf32")  # exact here
    for _ in range(2):
        np.testing.assert_array_equal(tw.gemm(make(4, 6), packed, math="tf32"), make(4, 6) @ make(6, 5))
        np.testing.assert_array_equal(tw.matmul(make(2, 3, 4, 6), packed), make(2, 3, 4, 6) @ make(6, 5))
        np.testing.assert_array_equal(tw.matmul(make(6), packed), make(6) @ make(6, 5))


def test_errors_call_bias_and_residual_by_their_names() -> None:
    a, b, good = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32), np.ones(6, np.float32)
    short = np.ones(5, np.float32)
    assert "bias has shape (5,)" in str(refused("shape-d", lambda: tw.gemm(a, b, bias=short)))
    assert "residual has shape (5,)" in str(refused("shape-d", lambda: tw.gemm(a, b, bias=good, residual=short)))
    assert "ds[0] has shape (5,)" in str(refused("shape-d", lambda: tw.gemm(a, b, bias=good, ds=(short,))))
    assert "(bias) of int8" in str(refused("dtype-d", lambda: tw.gemm(a, b, bias=good.astype(np.int8))))
    assert "bias has elements" in str(refused("array-dtype", lambda: tw.gemm(a, b, bias=good.astype(np.int16))))


def test_arrays_that_are_none_and_ranks_are_said_in_words_that_help() -> None:
    b = np.ones((8, 6), np.float32)
    listed, number = array.array("f", [1.0]), np.ones((), np.float32)
    assert "a is an array.array, not an array" in str(refused("array-type", lambda: tw.gemm(listed, b)))
    assert "1 row and 1 column" in refused("array-rank", lambda: tw.gemm(number, b)).remedy
    assert "matmul" not in refused("array-rank", lambda: tw.matmul(number, b)).remedy
    assert "b has 1 dimension, and" in str(refused("array-rank", lambda: tw.pack(b[0])))


def test_an_output_of_a_type_that_no_kernel_writes_is_not_to_be_converted() -> None:
    a, b = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)
    remedy = refused("array-dtype", lambda: tw.gemm(a, b, out=np.empty((4, 6), np.int16))).remedy
    assert "allocate out" in remedy
    assert "fp32" in remedy
    assert "astype" not in remedy
