"""The filter reader: agrees with Python on what it allows, refuses the rest, executes nothing."""

from __future__ import annotations

import difflib
import sys
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.cpu.gemm.names import CpuPackedSchedule
from tilewright.codegen.filter import MAX_TEXT, Filter
from tilewright.errors import FilterError
from tilewright.ops import KernelSpec
from tilewright.ops.fields import flat
from tilewright.ops.gemm import GemmSignature

SPEC = KernelSpec(
    "gemm",
    GemmSignature("multi_d", "bf16", "bf16", "fp32", "fp32", "fp32", "rcr", "MultiDAdd", 2),
    CpuPackedSchedule("packed", (96, 256, 128), (6, 16, 2), pad=(True, False, True), split_k=4),
    "x86_64_v3",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c.tile_n >= 128 and c.pipeline == 'packed'", True),
        ("c.tile_n > 256 or c.pipeline == 'direct'", False),
        ("c.tile == (96, 256, 128)", True),
        ("c.warp_tile_m * c.warp_tile_n <= 96", True),
        ("c.tile_m % c.warp_tile_m == 0", True),
        ("c.tile_m // 7 - 3 == 10", True),
        ("not c.pad_n", True),
        ("c.pad_m and not c.pad_n and c.pad_k", True),
        ("100 < c.tile_k < 200", True),
        ("100 < c.tile_k < 128", False),
        ("c.layout in ('rcr', 'rrr')", True),
        ("c.layout not in ['rcr', 'rrr']", False),
        ("'add' in c.epilogue", False),
        ("'Add' in c.epilogue", True),
        ("c.arch == 'x86_64_v3' and c.op == 'gemm'", True),
        ("c.num_d == 2 and c.dtype_a == 'bf16' and c.dtype_c != c.dtype_a", True),
        ("c.warp_grid_m == 1 and c.warp_grid == (1, 1, 1)", True),
        ("-c.split_k == -4", True),
        ("c.persistent == None", True),  # CK Tile kernels have it, these have not
        ("c.persistent == False or c.stages >= 1 or c.stages * 2 > 0", False),
        ("c.split_k in (2, 4) and True", True),
        ("'gemm_bf16' in c.name", True),
        ("  c.unroll == 1  ", True),
    ],
)
def test_expressions_mean_what_they_say(text: str, expected: bool) -> None:
    assert Filter(text)(SPEC) is expected


@pytest.mark.parametrize(
    ("text", "rule", "caret"),
    [
        ("", "filter-syntax", 0),
        ("c.tile_n >=", "filter-syntax", 11),
        ("c.tile_n >= 1 and", "filter-syntax", 17),
        ("c.tile_n = 3", "filter-syntax", None),
        ("c.tile_n >= 1; c.tile_m", "filter-syntax", 13),
        ("c.tile_n is 3", "filter-syntax", 0),
        ("c.tile[0] == 3", "filter-syntax", 0),
        ("1 == 1 and f(2)", "filter-syntax", 11),
        ("[x for x in (1,)]", "filter-syntax", 0),
        ("(lambda: 1)", "filter-syntax", 1),
        ("f'{c.name}' == 'x'", "filter-syntax", 0),
        ("2 ** 9 == 512", "filter-syntax", 0),
        ("1 / 2 == 0.5", "filter-syntax", 0),
        ("~c.tile_n == 1", "filter-syntax", 0),
        ("1j == c.tile_n", "filter-syntax", 0),
        ("b'x' == c.name", "filter-syntax", 0),
        ("(y := 3) == 3", "filter-syntax", 1),
        ("c", "filter-name", 0),
        ("c.pipeline == packed", "filter-name", 14),
        ("d.tile_n > 3", "filter-name", 0),
        ("c.tile.m > 3", "filter-name", 0),
        ("c.__class__ == 1", "filter-name", 0),
        ("c.tile_n > 0 or c.tyle_n > 0", "filter-name", 16),
        ("'é' == c.tyle_n", "filter-name", 7),
        ("c.pipeline >= 3", "filter-type", 0),
        ("c.tile > 3", "filter-type", 0),
        ("3 in c.tile_n", "filter-type", 0),
        ("c.name * 1000000 == ''", "filter-type", 0),
        ("c.name % 3 == ''", "filter-type", 0),
        ("-c.name == 1", "filter-type", 0),
        ("c.tile_n // 0 == 1", "filter-value", 0),
        ("c.tile_n % (c.unroll - 1) == 1", "filter-value", 0),
        ("1e400 > c.tile_n", "filter-size", 0),
    ],
)
def test_a_wrong_expression_is_shown_with_its_place(text: str, rule: str, caret: int | None) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(text)(SPEC)
    error = caught.value
    assert error.rule == rule
    assert error.remedy
    first, shown, pointer = error.message.split("\n")
    assert first
    assert shown == f"    {text}"
    assert pointer.strip() == "^"
    if caret is not None:
        assert len(pointer) - 1 == 4 + caret


def test_an_unknown_attribute_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(FilterError) as caught:
        Filter("c.pipelin == 'packed'")(SPEC)
    assert "did you mean 'pipeline'" in caught.value.remedy
    for name in ("tile_m", "warp_tile_k", "warp_grid_n", "pad_m", "arch", "op", "name", "dtype_acc"):
        assert name in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "1 == 1 and " * MAX_TEXT,
        "(" * 300 + "1" + ")" * 300,
        "-" * 1500 + "1",
        "not " * 400 + "1",
        "+".join(["1"] * 900),
        "(" + "1," * 900 + ")",
        "*".join(["99999999999999999999"] * 30),
        "\x00",
        "'" + "\ud800" + "'",
        "((((",
    ],
)
def test_large_and_odd_texts_are_refused_with_one_error(text: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(text)(SPEC)
    assert caught.value.rule in ("filter-size", "filter-syntax")
    assert caught.value.remedy


NUMBERS = [name for name, value in flat(SPEC).items() if isinstance(value, int)]
TEXTS = [name for name, value in flat(SPEC).items() if isinstance(value, str)]

number_atoms = st.one_of(
    st.integers(0, 300).map(str), st.sampled_from(NUMBERS).map("c.{}".format), st.sampled_from(["True", "False", "1.5"])
)
text_atoms = st.one_of(st.sampled_from(["'packed'", "'rcr'", "'fp'", "''"]), st.sampled_from(TEXTS).map("c.{}".format))
numbers = st.recursive(
    number_atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map("({0[0]} {0[1]} {0[2]})".format),
        inner.map("-({})".format),
    ),
    max_leaves=4,
)
ordered = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
tests = st.one_of(
    st.tuples(numbers, ordered, numbers).map("{0[0]} {0[1]} {0[2]}".format),
    st.tuples(numbers, ordered, numbers, ordered, numbers).map("{0[0]} {0[1]} {0[2]} {0[3]} {0[4]}".format),
    st.tuples(text_atoms, ordered, text_atoms).map("{0[0]} {0[1]} {0[2]}".format),
    st.tuples(text_atoms, st.sampled_from(["in", "not in"]), text_atoms).map("{0[0]} {0[1]} {0[2]}".format),
    st.tuples(numbers, st.sampled_from(["in", "not in"]), st.lists(numbers, min_size=1, max_size=3)).map(
        lambda one: f"{one[0]} {one[1]} ({', '.join(one[2])},)"
    ),
    numbers,
)
expressions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map("({0[0]}) {0[1]} ({0[2]})".format),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map("{0[0]} {0[1]} {0[2]}".format),
        inner.map("not ({})".format),
    ),
    max_leaves=5,
)


@settings(max_examples=400)
@given(expressions)
def test_a_legal_expression_gives_what_python_gives(text: str) -> None:
    try:
        expected = bool(eval(text, {"__builtins__": {}}, {"c": SimpleNamespace(**flat(SPEC))}))
    except ZeroDivisionError:
        with pytest.raises(FilterError) as caught:
            Filter(text)(SPEC)
        assert caught.value.rule == "filter-value"
        return
    assert Filter(text)(SPEC) is expected


class Watch:
    """Records what the interpreter does while it is on; hooks cannot be taken off again, so one serves all."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if self.on and (event in ("exec", "open", "import") or event.startswith(("os.", "subprocess.", "socket."))):
            self.seen.append(event)

    def demand_quiet(self, text: str) -> None:
        self.seen.clear()
        self.on = True
        try:
            Filter(text)(SPEC)
        except FilterError:
            pass
        finally:
            self.on = False
        assert not self.seen, text


def use_everything_once() -> None:
    """Methods of dataclasses are compiled when they are first asked for, which no expression is to blame for."""
    for text in ("0", "c.name", "c.nothing", "c.tile_m == 1 and c.name", "1 +", "c.name < 1"):
        with suppress(FilterError):
            Filter(text)(SPEC)


use_everything_once()
WATCH = Watch()
assert difflib, "loaded by the remedy of an unknown name: before the watch, not under it"

attacks = st.recursive(
    st.sampled_from(
        ["c", "c.name", "c.tile", "__import__", "open", "eval", "print", "'os'", "'x'", "1", "()", "globals"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("{0[0]}({0[1]})".format),
        st.tuples(inner, st.sampled_from(["__class__", "__globals__", "system", "format", "__subclasses__"])).map(
            "{0[0]}.{0[1]}".format
        ),
        st.tuples(inner, inner).map("{0[0]}[{0[1]}]".format),
        inner.map("[x for x in {}]".format),
        inner.map("(lambda: {})()".format),
        st.tuples(inner, inner).map("{0[0]} and {0[1]}".format),
        inner.map("f'{{{}}}'".format),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(attacks)
def test_nothing_in_an_expression_is_executed(text: str) -> None:
    WATCH.demand_quiet(text)


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_any_text_gives_an_answer_or_a_filter_error(text: str) -> None:
    WATCH.demand_quiet(text)


def test_the_watch_would_see_an_execution() -> None:
    WATCH.seen.clear()
    WATCH.on = True
    try:
        eval("__import__('os').getcwd()")
    finally:
        WATCH.on = False
    assert WATCH.seen


@dataclass(frozen=True)
class ConvSignature:
    direction: str
    stride: tuple[int, int]

    def label(self) -> str:
        return self.direction


@dataclass(frozen=True)
class ConvSchedule:
    tile: tuple[int, int, int]
    heads: tuple[int, int]
    axis_names: ClassVar[dict[str, tuple[str, ...]]] = {"heads": ("q", "kv"), "tile": ("m", "n", "k")}

    def label(self) -> str:
        return "x"


def test_another_op_gets_its_flat_names_for_free() -> None:
    spec = KernelSpec("winding", ConvSignature("forward", (2, 3)), ConvSchedule((64, 128, 32), (8, 2)), "generic")
    assert Filter("c.direction == 'forward' and c.tile_n == 128 and c.op == 'winding'")(spec)
    assert Filter("c.stride_0 == 2 and c.stride_1 == 3 and c.heads_q == 4 * c.heads_kv")(spec)
    one = Filter("c.tile_m > 1")
    assert one(spec)
    assert one(SPEC)
    with pytest.raises(FilterError, match="winding kernel has no attribute 'pipeline'"):
        Filter("c.pipeline == 'packed'")(spec)
