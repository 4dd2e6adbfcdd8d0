"""Every way in which a producer of DLPack can lie or misbehave, in every place of a call: one error, no crash, and each
capsule deleted once.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.fuzz import capsules
from tests.fuzz.memory import Array, Live, make_arrays
from tilewright.errors import InternalError, TilewrightError


def made(kind: str, shape: tuple[int, ...] = (4, 4), dtype: str = "float32") -> Live:
    size = np.dtype(dtype).itemsize
    strides = tuple(size * int(np.prod(shape[index + 1 :])) for index in range(len(shape)))
    live = make_arrays({"x": Array(dtype, shape, strides, "dlpack", kind=kind)})["x"]
    live.thing = capsules.produce(live)
    return live


def call_in_every_place(thing: Any, dtype: str = "float32") -> list[TilewrightError | None]:
    plain = np.ones((4, 4), dtype)
    ways: list[Any] = [
        lambda: tw.gemm(thing, plain),
        lambda: tw.gemm(plain, thing),
        lambda: tw.matmul(thing, thing, copy="allow"),
        lambda: tw.gemm(plain, plain, thing),
        lambda: tw.gemm(plain, plain, thing, beta=2, copy="allow"),
        lambda: tw.gemm(plain, plain, ds=(plain, thing), epilogue="relu"),
        lambda: tw.gemm(plain, plain, out=thing),
        lambda: tw.pack(thing),
    ]
    found: list[TilewrightError | None] = []
    for way in ways:
        try:
            way()
            found.append(None)
        except TilewrightError as error:
            found.append(error)
    for one in found:
        assert one is None or (one.rule and one.remedy and not isinstance(one, InternalError))
    return found


@pytest.mark.sampled(len(capsules.HOSTILE))  # every kind
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", capsules.HOSTILE)
def test_lies_and_bad_manners_are_one_error(kind: str, dtype: str) -> None:
    live = made(kind, dtype=dtype)
    refused = capsules.must_be_refused(live.recipe)  # type: ignore[arg-type]
    for _ in range(2):
        for error in call_in_every_place(live.thing, dtype):
            assert error is not None or not refused
    del live, error
    gc.collect()
    assert capsules.normalized() == []


@pytest.mark.parametrize("kind", capsules.HONEST)
def test_what_is_unusual_and_right_is_read(kind: str) -> None:
    live = made(kind)
    for _ in range(2):
        assert call_in_every_place(live.thing) == [None] * 8
    del live
    gc.collect()
    assert capsules.normalized() == []


def test_what_has_no_elements_needs_no_memory() -> None:
    for kind in ("no data", "data at 8", "offset 2^63"):
        live = made(kind, (0, 4))
        assert tw.gemm(live.thing, np.ones((4, 3), np.float32)).shape == (0, 3)


def test_the_count_of_deleters_counts() -> None:
    live = made("")
    capsule = live.thing.__dlpack__()
    assert capsules.unsettled()
    del capsule
    assert not capsules.unsettled()
    assert capsules.normalized() == []
    capsule = live.thing.__dlpack__()
    assert capsules.normalized() == ["1 capsule(s) were never deleted"]
    del capsule
    assert capsules.normalized() != []
