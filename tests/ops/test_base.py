"""Dataclasses and plain data: whatever a spec or a problem may hold comes back, and nothing else goes in."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ProblemError, RequestError
from tilewright.ops.base import from_plain, plain, settle
from tilewright.ops.gemm import GemmProblem


@dataclass(frozen=True)
class Window:
    size: tuple[int, ...]
    stride: tuple[int, int]


@dataclass(frozen=True)
class Conv:
    op: ClassVar[str] = "conv"

    kind: str = field(default="conv", init=False)
    spatial: tuple[int, ...]
    window: Window
    more: tuple[Window, ...]
    heads: int | None
    scale: Optional[float]  # noqa: UP045  both spellings are read
    causal: bool
    order: Literal["nchw", "nhwc"]
    pads: tuple[tuple[int, int], ...]
    inner: Window | None = None
    name: str = "x"


whole = st.integers(-(2**70), 2**70)
windows = st.builds(Window, size=st.lists(whole, max_size=3).map(tuple), stride=st.tuples(whole, whole))
convs = st.builds(
    Conv,
    spatial=st.lists(whole, max_size=4).map(tuple),
    window=windows,
    more=st.lists(windows, max_size=2).map(tuple),
    heads=st.none() | whole,
    scale=st.none() | st.floats(allow_nan=False),
    causal=st.booleans(),
    order=st.sampled_from(["nchw", "nhwc"]),
    pads=st.lists(st.tuples(whole, whole), max_size=3).map(tuple),
    inner=st.none() | windows,
    name=st.text(max_size=5),
)
ONE = Conv((3, 4), Window((2,), (1, 1)), (), None, 0.5, True, "nchw", ((1, 2),))


@given(convs)
def test_what_a_dataclass_holds_comes_back_from_json(one: Conv) -> None:
    back = from_plain(Conv, "a conv", json.loads(json.dumps(plain(one))))
    assert back == one
    assert hash(back) == hash(one)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spatial", [3, True]),
        ("spatial", [3, 4.0]),
        ("spatial", 3),
        ("spatial", "34"),
        ("window", {"size": [1], "stride": [1]}),
        ("window", {"size": [1], "stride": [1, "1"]}),
        ("window", {"size": [1]}),
        ("window", None),
        ("more", [None]),
        ("heads", True),
        ("heads", "2"),
        ("scale", 1),
        ("causal", 1),
        ("causal", None),
        ("order", "hwc"),
        ("pads", [[1, 2, 3]]),
        ("inner", 4),
        ("name", None),
        ("kind", "gemm"),
    ],
)
def test_anything_else_is_refused_by_field(name: str, value: Any) -> None:
    data = {**plain(ONE), name: value}
    with pytest.raises(RequestError) as caught:
        from_plain(Conv, "a conv", data)
    assert caught.value.rule == "spec-field"
    assert caught.value.remedy


def test_a_field_left_out_has_its_default_or_is_named() -> None:
    data = plain(ONE)
    del data["inner"], data["name"]
    assert from_plain(Conv, "a conv", data) == ONE
    for needed in ("heads", "kind"):
        with pytest.raises(RequestError, match=needed):
            from_plain(Conv, "a conv", {name: value for name, value in data.items() if name != needed})


@dataclass(frozen=True, slots=True)
class Problem:
    op: ClassVar[str] = "conv"

    batch: int
    spatial: tuple[int, ...] = ()
    scale: float = 1.0
    causal: bool = False
    groups: int | None = None
    name: str = "x"

    def __post_init__(self) -> None:
        settle(self)


def test_numbers_of_numpy_are_numbers() -> None:
    made = Problem(np.int64(4), [np.int32(3), 5], np.float32(0.5), np.bool_(True), np.uint8(2), np.str_("y"))  # type: ignore[arg-type]
    assert made == Problem(4, (3, 5), 0.5, True, 2, "y")
    assert [type(getattr(made, one.name)) for one in dataclasses.fields(made)] == [int, tuple, float, bool, int, str]
    assert [type(one) for one in made.spatial] == [int, int]
    assert Problem(1, scale=2).scale == 2.0
    assert hash(made) == hash(Problem(4, (3, 5), 0.5, True, 2, "y"))


BAD: list[tuple[str, Any]] = [
    ("batch", "4"), ("batch", 4.0), ("batch", True), ("batch", None), ("batch", np.float32(4)), ("batch", [4]),
    ("batch", np.bool_(True)), ("batch", np.array([4, 4])), ("spatial", 4), ("spatial", "34"), ("spatial", (True,)),
    ("scale", "1"),
    ("scale", True), ("causal", 1), ("causal", "no"), ("groups", 1.5), ("name", 3), ("name", b"x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_is_no_such_value_is_one_clear_error(name: str, value: Any) -> None:
    with pytest.raises(ProblemError, match=f"{name} of a conv problem cannot be") as caught:
        Problem(**{"batch": 1, name: value})
    assert caught.value.rule == "problem-field"
    assert caught.value.remedy


@pytest.mark.parametrize("value", ["4", 4.0, True, None, [4], float("nan")])
def test_every_field_of_a_gemm_problem_is_checked_when_it_is_made(value: Any) -> None:
    given_types = {one.name: type(one.default) for one in dataclasses.fields(GemmProblem)}
    for name, kind in given_types.items():
        if type(value) is kind:
            continue
        with pytest.raises(ProblemError, match=rf"^\[problem-field\] {name} of a gemm problem"):
            GemmProblem(**{"m": 1, "n": 1, "k": 1, name: value})


def test_a_gemm_problem_takes_sizes_as_numpy_has_them() -> None:
    shape = np.zeros((3, 4)).shape
    made = GemmProblem(m=np.int64(3), n=np.int32(4), k=shape[1], beta=np.bool_(True))  # type: ignore[arg-type]
    assert made == GemmProblem(3, 4, 4, beta=True)
    assert type(made.m) is int
    assert json.loads(json.dumps(plain(made)))["m"] == 3
