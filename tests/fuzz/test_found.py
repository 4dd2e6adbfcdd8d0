"""What the fuzzer found, each as the shortest call that shows it."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.fuzz.oddities import Raises
from tilewright.errors import MachineError, ProblemError, TilewrightError, UnknownNameError
from tilewright.runtime import dlpack

F32 = np.float32
A, B = np.ones((4, 6), F32), np.ones((6, 5), F32)


def refused(rule: str, call: Any, kind: type[TilewrightError] = ProblemError) -> TilewrightError:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.rule == rule, str(caught.value)
    assert caught.value.remedy
    return caught.value


class OddShape:
    shape = 3


@pytest.mark.parametrize(
    "value",
    [-(10**5000), 10**400, np.str_("2"), np.array("2"), np.bytes_(b"2"), np.timedelta64(2, "s"), np.array(2, "m8[s]"),
     np.array(True, object), np.array(None, object), np.void(b"\0\0\0\0"), OddShape(), Raises()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_scalars_that_float_takes_or_that_cannot_be_printed(value: Any) -> None:
    refused("scalar", lambda: tw.gemm(A, B, alpha=value))
    refused("scalar", lambda: tw.gemm(A, B, np.ones((4, 5), F32), beta=value))


MANY = np.array(["never", "never"])


@pytest.mark.parametrize("value", [MANY, ["never"], None, True, Raises()], ids=lambda value: type(value).__name__)
def test_names_that_are_no_texts(value: Any) -> None:
    refused("copy-name", lambda: tw.gemm(A, B, copy=value))
    refused("copy-name", lambda: tw.matmul(A, B, copy=value))
    if value is None:
        return
    refused("math-name", lambda: tw.matmul(A, B, math=value), UnknownNameError)
    refused("epilogue-name", lambda: tw.gemm(A, B, epilogue=value))
    for call in (tw.gemm, tw.matmul):
        refused("arch-name", lambda call=call: call(A, B, target=value), UnknownNameError)
    refused("arch-name", lambda: tw.explain(tw.GemmProblem(4, 4, 4), target=value), UnknownNameError)
    refused("arch-name", lambda: tw.Registry(value), UnknownNameError)


def test_a_copy_that_is_forbidden_in_another_string() -> None:
    assert (tw.gemm(A, B, copy="".join(["ne", "ver"])) == 6).all()
    assert (tw.matmul(A, B, copy=np.str_("never")) == 6).all()


@pytest.mark.parametrize(
    "value",
    [(np.float32, -1), (np.float32, 10**30), {"names": ["x"]}, Raises(), np.dtype(">f4"), object()],
    ids=lambda value: type(value).__name__,
)
def test_output_types_numpy_chokes_on(value: Any) -> None:
    refused("array-dtype", lambda: tw.gemm(A, B, out_dtype=value))


def test_ds_that_answers_every_question_with_an_error() -> None:
    wrong: list[Any] = [Raises(), np.ones(5, F32), None, 3, "ds", {}]
    for ds in wrong:
        refused("ds-type", lambda ds=ds: tw.gemm(A, B, ds=ds, epilogue="relu"))


@pytest.mark.parametrize("value", [Raises(), np.ndarray], ids=["raises", "ndarray"])
def test_what_is_no_array_is_not_asked_for_its_attributes(value: Any) -> None:
    refused("array-type", lambda: tw.gemm(value, B))
    refused("array-type", lambda: tw.gemm(A, value))
    refused("array-type", lambda: tw.matmul(A, B, out=value))
    refused("array-type", lambda: tw.pack(value))


class Numpys:
    """An array of a library that is NumPy, which takes no bf16 through DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __array_namespace__(self) -> Any:
        return np


def test_a_library_that_does_not_take_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    before = len(dlpack._exported)
    for _ in range(2):
        result = tw.gemm(Numpys(A), B, out_dtype="bf16")
        assert type(result) is np.ndarray
        assert (result == 6).all()
    assert (len(dlpack._exported), told) == (before, [])


def test_a_library_that_does_not_take_an_array_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    before = len(dlpack._exported)
    ours = tw.to_device(A.astype(ml_dtypes.bfloat16), "generic")
    with pytest.raises(RuntimeError):
        np.from_dlpack(ours)
    plain = tw.to_device(A, "generic")
    taken = np.from_dlpack(plain)
    del ours, plain
    assert (taken == 1).all()
    del taken
    assert (len(dlpack._exported), told) == (before, [])


class Copies(Numpys):
    """An array of a library that copies what it takes."""

    def __array_namespace__(self) -> Any:
        class Library:
            @staticmethod
            def from_dlpack(producer: Any) -> list[Any]:
                return [np.from_dlpack(producer).copy()]

        return Library


def test_results_are_handed_to_a_library_when_they_are_there() -> None:
    for a in (A, A[::-1]):  # the second is copied
        result = tw.gemm(Copies(a), B, copy="allow")
        assert type(result) is list
        assert (result[0] == 6).all()


def test_copies_of_what_only_speaks_dlpack() -> None:
    memory = np.zeros(200, np.uint8)
    crooked = memory[1:97].view(F32).reshape(4, 6)
    crooked[...] = 2
    assert (tw.gemm(Numpys(crooked), B, copy="allow") == 12).all()
    out = np.full((5, 4), np.nan, F32).T
    c = np.arange(20, dtype=F32).reshape(4, 5)
    np.testing.assert_array_equal(tw.gemm(A, B, Numpys(c), beta=2.0, out=out, copy="allow"), 6 + 2 * c)


def test_memory_that_no_machine_has() -> None:
    for m, n in ((2**25, 2**25), (2**30, 2**29)):
        a, b = np.empty((m, 0), F32), np.empty((0, n), F32)
        refused("memory", lambda a=a, b=b: tw.gemm(a, b), MachineError)
    wide = np.broadcast_to(np.ones((3, 1), F32), (3, 2**39))
    refused("memory", lambda: tw.matmul(wide, wide.T, copy="allow"), MachineError)


def test_packing_nothing_takes_no_time() -> None:
    packed = tw.pack(np.empty((0, 2**40), F32))  # this took days
    assert packed.nbytes == 0
    assert tw.gemm(np.empty((0, 0), F32), packed).shape == (0, 2**40)
    for shape in ((0, 5), (6, 0), (0, 6, 5)):
        assert tw.pack(np.empty(shape, F32)).shape.n == shape[-1]
    assert (tw.gemm(np.empty((4, 0), F32), tw.pack(np.empty((0, 5), F32))) == 0).all()


def test_a_packed_batch_of_none_is_a_batch() -> None:
    packed = tw.pack(np.ones((0, 6, 5), F32))
    for a in (A, A[None], np.ones((0, 4, 6), F32)):
        for _ in range(2):
            assert tw.gemm(a, packed).shape == (0, 4, 5)
    refused("shape-batch", lambda: tw.gemm(np.ones((2, 4, 6), F32), packed))
    assert (tw.gemm(A, tw.pack(B[None])) == 6).all()
