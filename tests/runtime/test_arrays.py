"""Views of NumPy arrays and DLPack producers, without copies."""

from __future__ import annotations

import ctypes
import gc
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.errors import DeviceError, ProblemError
from tilewright.runtime import arrays, dlpack
from tilewright.runtime.arrays import View, view
from tilewright.runtime.requests import Result

TYPES = [
    (np.float32, "fp32"),
    (np.float16, "fp16"),
    (ml_dtypes.bfloat16, "bf16"),
    (ml_dtypes.float8_e4m3fn, "fp8_e4m3"),
    (ml_dtypes.float8_e5m2, "fp8_e5m2"),
    (np.int8, "int8"),
    (np.int32, "int32"),
]


def export(array: np.ndarray[Any, Any], dtype: str) -> dlpack.Exporter:
    strides = tuple(one // array.itemsize for one in array.strides)
    return dlpack.Exporter(array, arrays.address_of(array), array.shape, strides, dtype)


@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_numpy_arrays_of_every_type(kind: Any, name: str) -> None:
    array = np.zeros((3, 8), kind)[:, 2:]
    found = view("a", array)
    assert (found.dtype, found.shape, found.strides) == (name, (3, 6), (8, 1))
    assert found.address == array.__array_interface__["data"][0]
    assert found.numpy() is array


@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_dlpack_of_every_type_goes_there_and_back(kind: Any, name: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(kind)
    found = view("a", export(array.T, name))
    assert (found.dtype, found.shape, found.strides) == (name, (4, 3), (1, 4))
    assert found.address == arrays.address_of(array)
    assert found.numpy().tobytes() == array.T.tobytes()


def test_a_capsule_nobody_took_frees_its_memory() -> None:
    array = np.zeros((2, 2), np.float32)
    before = len(dlpack._exported)
    found = view("a", export(array, "fp32"))
    assert len(dlpack._exported) == before + 1
    del found
    gc.collect()
    assert len(dlpack._exported) == before


def test_the_quick_address_is_numpys_own() -> None:
    for array in (np.zeros((0, 3)), np.zeros(5)[2:], np.zeros((4, 4)).T, np.zeros((2, 2), ml_dtypes.bfloat16)):
        assert arrays.address_of(array) == array.__array_interface__["data"][0]


class Producer:
    """A DLPack producer made of the parts a test gives."""

    def __init__(self, device: tuple[int, int] = (1, 0), capsule: Any = None, error: Exception | None = None) -> None:
        self._device, self._capsule, self._error = device, capsule, error

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **_: object) -> Any:
        if self._error is not None:
            raise self._error
        return self._capsule


def test_memory_of_a_gpu_is_refused_with_its_name() -> None:
    with pytest.raises(DeviceError, match="cuda:1") as caught:
        view("a", Producer(device=(2, 1)))
    assert caught.value.rule == "array-device"


def test_a_producer_that_refuses_is_quoted() -> None:
    with pytest.raises(ProblemError, match="requires grad") as caught:
        view("a", Producer(error=BufferError("requires grad")))
    assert caught.value.rule == "array-dlpack"


def test_what_is_no_capsule_is_refused() -> None:
    with pytest.raises(ProblemError, match="did not return a DLPack capsule"):
        view("a", Producer(capsule=42))


def test_numpys_own_capsules_are_read_with_their_read_only_flag() -> None:
    class ThroughDlpack:
        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

    array = np.zeros((2, 3), np.float32)
    assert view("a", ThroughDlpack(array)).writeable
    array.flags.writeable = False
    found = view("a", ThroughDlpack(array))
    assert (found.shape, found.writeable) == ((2, 3), False)
    with pytest.raises(ProblemError, match="float64"):
        view("a", ThroughDlpack(np.zeros((2, 3))))


def test_a_result_comes_back_in_the_library_of_the_input() -> None:
    class Library:
        @staticmethod
        def from_dlpack(producer: Any) -> tuple[str, View]:
            return ("converted", view("x", producer))

    class Array:
        def __array_namespace__(self) -> type[Library]:
            return Library

    wanted = Result(0, (2, 3), (3, 1), "bf16")
    made, address = arrays.new_result(Array(), wanted)
    kind, found = arrays.as_kind_of(Array(), made, wanted)
    assert kind == "converted"
    assert (found.dtype, found.address, found.shape) == ("bf16", address, (2, 3))
    plain, address = arrays.new_result(object(), Result(0, (2, 3), (1, 2), "bf16"))
    assert (plain.dtype, plain.strides) == (np.dtype(ml_dtypes.bfloat16), (2, 4))
    assert arrays.address_of(plain) == address


@pytest.mark.parametrize("strides", [(512 * 3, 3, 1), (1, 1 << 10, 512 << 10)])
def test_a_large_result_begins_with_a_line_of_a_cache(strides: tuple[int, ...]) -> None:
    """So that kernels write whole lines of it; made anew in each call as in the first."""
    wanted = Result(0, (1 << 10, 512, 3), strides, "bf16")
    example = np.zeros(1)
    again = arrays.maker(example, wanted)
    assert again is not None
    for made in (arrays.new_result(example, wanted)[0], again.make(*again.arguments)):
        assert made.ctypes.data % 64 == 0
        assert made.shape == wanted.shape
        assert made.strides == tuple(2 * one for one in strides)


small = st.integers(0, 4)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), min_size=1, max_size=3),
    st.integers(-12, 12),
)
def test_overlap_is_what_counting_bytes_says(x: list[tuple[int, int]], y: list[tuple[int, int]], shift: int) -> None:
    memory = np.zeros(400, np.int32)
    middle = arrays.address_of(memory) + 4 * 200

    def build(parts: list[tuple[int, int]], at: int) -> tuple[View, set[int], int]:
        shape, strides = tuple(n for n, _ in parts), tuple(s for _, s in parts)
        places = [
            at + 4 * sum(i * s for i, s in zip(index, strides, strict=True))
            for index in itertools.product(*(range(n) for n in shape))
        ]
        return View("x", at, shape, strides, "int32", True, memory), set(places), len(places)

    one, bytes_one, count = build(x, middle)
    two, bytes_two, _ = build(y, middle + 4 * shift)
    assert arrays.share_memory(one, two) == bool(bytes_one & bytes_two)
    if arrays.overlaps_itself(one) is False:
        assert len(bytes_one) == count  # it never misses an overlap


def test_ordinary_outputs_do_not_overlap_themselves() -> None:
    base = np.zeros((4, 6, 8), np.float32)
    for array in (base, base.transpose(1, 0, 2), base[:, ::2, 1:], base[0].T):
        assert not arrays.overlaps_itself(view("out", array))
    assert arrays.overlaps_itself(view("out", np.broadcast_to(base[0], (3, 6, 8))))


def test_torch_tensors_are_seen_and_given_back() -> None:
    torch = pytest.importorskip("torch")
    for kind, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.int8, "int8")):
        tensor = torch.zeros(3, 4, dtype=kind)
        found = view("a", tensor.T)
        assert (found.dtype, found.shape, found.strides, found.address) == (name, (4, 3), (1, 4), tensor.data_ptr())
    with pytest.raises(ProblemError, match="detach"):
        view("a", torch.zeros(2, 2, requires_grad=True))
    with pytest.raises(ProblemError, match="float64"):
        view("a", torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(DeviceError, match="meta"):
        view("a", torch.zeros(2, 2, device="meta"))
    made, address = arrays.new_result(tensor, Result(0, (2, 3, 4), (12, 1, 3), "bf16"))
    assert (made.dtype, made.stride(), made.data_ptr()) == (torch.bfloat16, (12, 1, 3), address)


class Hostile:
    """A DLPack producer whose capsule says what a test puts into it."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: str = "fp32", **fields: Any) -> None:
        self._inner, self._fields = export(array, dtype), fields

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: object) -> Any:
        capsule = self._inner.__dlpack__()
        tensor = dlpack._Managed.from_address(dlpack._pointer(capsule, b"dltensor")).tensor
        for name, value in self._fields.items():
            if name in ("code", "bits", "lanes"):
                setattr(tensor.dtype, name, value)
            elif name in ("shape", "strides") and value is None:
                setattr(tensor, name, ctypes.POINTER(ctypes.c_int64)())
            elif name == "size":
                tensor.shape[0] = value
            else:
                setattr(tensor, name, value)
        return capsule


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("array-null", {"data": None}),
        ("array-dlpack", {"shape": None}),
        ("array-dlpack", {"ndim": -1}),
        ("array-dlpack", {"ndim": 1 << 20}),
        ("array-dlpack", {"size": -3}),
        ("array-dtype", {"code": 99}),
        ("array-dtype", {"bits": 64}),
        ("array-dtype", {"lanes": 4}),
        ("array-alignment", {"byte_offset": 1}),
    ],
)
def test_capsules_that_say_nonsense_are_one_error(rule: str, fields: dict[str, Any]) -> None:
    array = np.ones((4, 4), np.float32)
    for _ in range(2):
        for call in (lambda x: tw.gemm(x, array), lambda x: tw.gemm(array, x), lambda x: tw.gemm(array, array, x),
                     lambda x: tw.gemm(array, array, out=x), tw.pack):  # fmt: skip
            with pytest.raises(ProblemError) as caught:
                call(Hostile(array, **fields))
            assert caught.value.rule == rule
            assert caught.value.remedy


def test_a_capsule_without_strides_is_dense_and_without_elements_needs_no_memory() -> None:
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(tw.gemm(Hostile(array, strides=None), array), array @ array)
    assert view("a", Hostile(array, size=0, data=None)).shape == (0, 4)


@pytest.mark.parametrize("error", [KeyError("x"), ZeroDivisionError(), OSError("y"), AttributeError("z")])
def test_whatever_a_producer_raises_is_one_error(error: Exception) -> None:
    with pytest.raises(ProblemError) as caught:
        tw.gemm(Producer(error=error), np.ones((2, 2), np.float32))
    assert caught.value.rule == "array-dlpack"

    class Nowhere(Producer):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise error

    for wrong in (Nowhere(), Producer(device="here")):  # type: ignore[arg-type]
        with pytest.raises(ProblemError):
            tw.gemm(np.ones((2, 2), np.float32), wrong)
        with pytest.raises(ProblemError):
            tw.gemm(wrong, np.ones((2, 2), np.float32))
