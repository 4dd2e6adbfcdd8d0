"""Every way to call gemm wrongly gives one clear error with its rule, the value and a remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import DeviceError, ProblemError, RequestError, TilewrightError, UnknownNameError

F32 = np.float32


def zeros(*shape: int, dtype: Any = F32) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def fails(rule: str, *operands: Any, kind: type[TilewrightError] = ProblemError, **keywords: Any) -> TilewrightError:
    """The error of a call; it must name the rule and a remedy."""
    with pytest.raises(kind) as caught:
        tw.gemm(*operands, **keywords)
    error = caught.value
    assert error.rule == rule, str(error)
    assert error.remedy, str(error)
    return error


A, B = zeros(4, 6), zeros(6, 5)


def test_inner_sizes_differ() -> None:
    error = fails("shape-k", A, zeros(5, 6))
    assert "6 and 5" in str(error)


@pytest.mark.parametrize("shape", [(4,), (6,), ()])
def test_not_a_matrix(shape: tuple[int, ...]) -> None:
    fails("array-rank", zeros(*shape), B)


def test_batches_differ() -> None:
    error = fails("shape-batch", zeros(2, 4, 6), zeros(3, 6, 5))
    assert "a (2,), b (3,)" in str(error)


def test_c_of_another_shape() -> None:
    fails("shape-c", A, B, zeros(5, 4), beta=1)


def test_c_of_another_dtype() -> None:
    fails("c-dtype", A, B, zeros(4, 5, dtype=np.float16), beta=1, out=zeros(4, 5))


def test_beta_without_c() -> None:
    fails("beta-without-c", A, B, beta=1)


@pytest.mark.parametrize("shape", [(4, 6), (3, 5), (3, 4, 6), (4,), (1, 4, 5, 1)])
def test_d_that_does_not_broadcast(shape: tuple[int, ...]) -> None:
    fails("shape-d", A, B, ds=(zeros(*shape),), epilogue="add")


def test_d_of_two_dtypes() -> None:
    fails("d-dtype", A, B, ds=(zeros(5), zeros(5, dtype=np.float16)), epilogue="add")


def test_d_in_the_other_layout() -> None:
    fails("layout-d", A, B, ds=(zeros(5, 4).T,), epilogue="add")


def test_d_must_be_a_sequence() -> None:
    fails("ds-type", A, B, ds=zeros(5), epilogue="add")


@pytest.mark.parametrize(
    ("epilogue", "count"), [("passthrough", 1), ("add", 0), ("multiply", 0), ("add", 5), ("relu", 5)]
)
def test_wrong_number_of_d(epilogue: str, count: int) -> None:
    fails("epilogue-d-count", A, B, ds=(zeros(5),) * count, epilogue=epilogue)


def test_dtypes_that_do_not_go_together() -> None:
    fails("dtype-mix", A.astype(np.int8), B)
    fails("array-dtype", A.astype(np.int32), B.astype(np.int32), out_dtype="int32")
    fails("dtype-output", A, B, out_dtype="int8")
    fails("dtype-d", A, B, ds=(zeros(5, dtype=np.float16),), epilogue="add")


@pytest.mark.parametrize("kind", [np.float64, np.complex64, np.uint8, np.bool_, object, "U4"])
def test_elements_no_kernel_takes(kind: Any) -> None:
    error = fails("array-dtype", np.zeros((4, 6), kind), B)
    assert "a.real" in error.remedy if kind is np.complex64 else "a.astype(np.float32)" in error.remedy


def test_bytes_in_the_other_order() -> None:
    error = fails("array-byte-order", A.astype(A.dtype.newbyteorder()), B)
    assert "newbyteorder" in error.remedy


@pytest.mark.parametrize("thing", [None, 3.0, [[1.0, 2.0]], "a", {"a": 1}])
def test_what_is_no_array(thing: Any) -> None:
    fails("array-type", thing, B)
    fails("array-type", A, thing)


def test_masks_are_not_ignored() -> None:
    fails("array-type", np.ma.masked_array(A, mask=A == 0), B)


def test_memory_of_a_gpu() -> None:
    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (10, 0)

        def __dlpack__(self, **_: object) -> object:
            raise AssertionError("must not be asked for")

    error = fails("array-device", OnGpu(), B, kind=DeviceError, target="cpu")
    assert "hip:0" in str(error)


def test_neither_rows_nor_columns_contiguous() -> None:
    error = fails("array-layout", zeros(8, 12)[::2, ::2], B)
    assert "(24, 2)" in str(error)
    assert 'copy="allow"' in error.remedy


def test_rows_that_lie_on_each_other() -> None:
    fails("array-layout", np.broadcast_to(zeros(6), (4, 6)), B)
    fails("array-layout", A[::-1], B)


def test_strides_that_are_no_multiple_of_the_element() -> None:
    record = np.zeros(4, np.dtype([("x", np.int8), ("y", F32, (6,))]))
    fails("array-strides", record["y"], B)


def test_misaligned_arrays() -> None:
    memory = np.zeros(4 * 6 * 4 + 1, np.int8)
    crooked = memory[1:].view(F32).reshape(4, 6)
    error = fails("array-alignment", crooked, B)
    assert "copy()" in error.remedy
    out = np.zeros(4 * 5 * 4 + 1, np.int8)[1:].view(F32).reshape(4, 5)
    fails("array-alignment", A, B, out=out)
    # The same shapes straight, so that the call is known, then crooked again.
    tw.gemm(A, B)
    tw.gemm(A, B, out=zeros(4, 5))
    fails("array-alignment", crooked, B)
    fails("array-alignment", A, B, out=out)


def test_out_of_another_shape_or_dtype() -> None:
    fails("shape-out", A, B, out=zeros(5, 4))
    fails("shape-out", A, B, out=zeros(1, 4, 4))
    fails("shape-out", zeros(2, 4, 6), B, out=zeros(4, 5))
    fails("out-dtype", A, B, out=zeros(4, 5), out_dtype="fp16")
    fails("dtype-output", A, B, out=zeros(4, 5, dtype=np.int8))


def test_out_that_is_read_only() -> None:
    out = zeros(4, 5)
    tw.gemm(A, B, out=out)
    out.flags.writeable = False
    fails("out-read-only", A, B, out=out)


def test_out_whose_elements_share_memory() -> None:
    crowded = np.lib.stride_tricks.as_strided(zeros(40), (2, 4, 5), (20, 20, 4))
    fails("out-overlaps-itself", zeros(2, 4, 6), B, out=crowded)


def test_out_that_overlaps_an_input() -> None:
    square = np.ones((6, 6), F32)
    for other in (square, square.copy()):  # unknown call, then a known one
        tw.gemm(other, other.copy(), out=zeros(6, 6))
    fails("out-overlaps", square, square.copy(), out=square)
    fails("out-overlaps", square.copy(), square, out=square)
    fails("out-overlaps", square.copy(), square.copy(), ds=(square[0],), epilogue="add", out=square)
    memory = np.ones(100, F32)
    shifted, out = memory[3:39].reshape(6, 6), memory[:36].reshape(6, 6)
    fails("out-overlaps", shifted, square, out=out)
    fails("out-overlaps", square, square, shifted, beta=1, out=out)
    np.testing.assert_array_equal(memory, 1)  # nothing was written before the error


def test_out_beside_an_input_in_one_array_is_fine() -> None:
    both = np.ones((6, 12), F32)
    tw.gemm(both[:, 6:], np.eye(6, dtype=F32), out=both[:, :6])
    np.testing.assert_array_equal(both, 1)


def test_out_may_be_c_itself_but_not_its_transpose() -> None:
    a, b, c = np.full((4, 4), 2, F32), np.eye(4, dtype=F32), np.arange(16, dtype=F32).reshape(4, 4)
    expected = a + c
    for _ in range(2):
        e = c.copy()
        assert tw.gemm(a, b, e, beta=1, out=e) is e
        np.testing.assert_array_equal(e, expected)
    fails("layout-c", a, b, c.T, beta=1, out=c)
    # A permuted batch has the same first element and the same bounds, yet other elements.
    cube = np.zeros((4, 4, 4), F32)
    fails("out-overlaps", np.zeros((4, 4, 4), F32), b, cube.transpose(1, 0, 2), beta=1, out=cube)


def test_c_and_out_in_different_layouts() -> None:
    fails("layout-c", A, B, zeros(4, 5), beta=1, out=zeros(5, 4).T)


def test_unknown_names() -> None:
    error = fails("epilogue-name", A, B, epilogue="relo", kind=UnknownNameError)
    assert "Relu" in error.remedy
    error = fails("arch-name", A, B, target="x86_64_v44", kind=UnknownNameError)
    assert "x86_64_v4" in error.remedy
    error = fails("dtype-name", A, B, out_dtype="fp23", kind=UnknownNameError)
    assert "fp32" in error.remedy
    fails("array-dtype", A, B, out_dtype=np.float64)
    for epilogue in (3, ["relu"]):
        fails("epilogue-name", A, B, epilogue=epilogue)
        fails("epilogue-name", A, B, epilogue=epilogue, out=zeros(4, 5))
    fails("array-dtype", A, B, out_dtype=["fp32"])


@pytest.mark.parametrize("scalar", ["x", None, 1j, [1], 10**400])
def test_scalars_that_are_no_numbers(scalar: Any) -> None:
    fails("scalar", A, B, alpha=scalar)


def test_a_target_this_machine_lacks() -> None:
    from tilewright.arch import all_archs, runnable_host_archs

    runnable = {one.name for one in runnable_host_archs()}
    lacking = [name for name, one in all_archs().items() if one.family == "cpu" and name not in runnable]
    if not lacking:
        pytest.skip("this machine runs every CPU arch")
    error = fails("arch-not-runnable", A, B, target=lacking[0], kind=DeviceError)
    assert lacking[0] in str(error)


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"m": -1}, "size-negative"),
        ({"k": -5}, "size-negative"),
        ({"batch": -1}, "size-negative"),
        ({"n": 1 << 41}, "size-huge"),
        ({"m": 1 << 39, "k": 1 << 39}, "size-huge"),
        ({"layout": "rrc"}, "layout-name"),
        ({"epilogue": "Sofplus"}, "epilogue-name"),
        ({"a_stride": 2}, "stride-short"),
    ],
)
def test_problems_that_contradict_themselves(sizes: dict[str, Any], rule: str) -> None:
    problem = tw.GemmProblem(**{"m": 4, "n": 4, "k": 4, **sizes})
    for ask in (tw.Registry().select, tw.explain):
        with pytest.raises(RequestError) as caught:
            ask(problem)
        assert caught.value.rule == rule
        assert caught.value.remedy


def test_packed_b_is_used_as_it_was_packed() -> None:
    packed = tw.pack(np.ones((6, 5), F32))
    fails("shape-k", zeros(4, 7), packed)
    fails("packed-dtype", zeros(4, 6, dtype=np.float16), packed)
    fails("packed-column-major", A, packed, out=zeros(5, 4).T)
    fails("array-type", packed, B)
    fails("shape-c", A, B, packed and zeros(3), beta=1)
    with pytest.raises(ProblemError) as caught:
        tw.pack(zeros(5))
    assert caught.value.rule == "array-rank"


def test_torch_tensors_that_need_gradients() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.zeros(4, 6, requires_grad=True), torch.zeros(6, 5)
    error = fails("array-grad", a, b, out=torch.zeros(4, 5))
    assert "no_grad()" in error.remedy
    error = fails("torch-trace", a, tw.pack(b))
    assert "packed" in error.remedy
