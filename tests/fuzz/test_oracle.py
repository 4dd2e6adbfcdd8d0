"""The fuzzer sees what it looks for: each kind of mistake is planted into a call and found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.fuzz import memory
from tests.fuzz.calls import Call, Example
from tests.fuzz.memory import Array, Same
from tests.fuzz.running import Runner, Wrong
from tilewright.errors import InternalError, ProblemError

A = Array("float32", (3, 4), (16, 4))
B = Array("float32", (4, 5), (20, 4), seed=1)
OUT = Array("float32", (3, 5), (20, 4), values="poison")
PLAIN = Call("gemm", A, B)


def product(a: Any, b: Any, *_: Any, out: Any = None, **__: Any) -> Any:
    """What is right."""
    result = np.matmul(a, b)
    if out is None:
        return result
    out[...] = result
    return out


def run(monkeypatch: pytest.MonkeyPatch, call: Call, gemm: Callable[..., Any]) -> Runner:
    monkeypatch.setattr(tw, "gemm", gemm)
    runner = Runner(None, [None], lambda _: None)
    runner.run(Example((call,)))
    return runner


def test_a_right_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (PLAIN, Call("gemm", A, B, out=OUT), Call("gemm", A, B, context=("one thread",))):
        counts = run(monkeypatch, call, product).counts
        assert counts["checked"] == counts["must"] == 2, json.dumps(counts)


def raises(error: Exception) -> Callable[..., Any]:
    def gemm(*_: Any, **__: Any) -> Any:
        raise error

    return gemm


def near(shift: float) -> Callable[..., Any]:
    def gemm(a: Any, b: Any, **_: Any) -> Any:
        result = product(a, b)
        result[1, 2] += shift
        return result

    return gemm


def beside(*given: Any, out: Any) -> Any:
    """The byte behind the last element is written."""
    product(*given, out=out)
    end = int(np.nonzero(out.base != memory.POISON)[0][-1])
    out.base[end + 1] = 7
    return out


def to_input(a: Any, b: Any, **_: Any) -> Any:
    result = product(a, b)
    a[0, 0] += 1
    return result


def half_written(a: Any, b: Any, out: Any) -> Any:
    out[0] = 1
    raise ProblemError("too late", rule="late", remedy="none")


PLANTED: list[tuple[str, Call, Callable[..., Any]]] = [
    ("a raw ValueError", PLAIN, raises(ValueError("no"))),
    ("a bug", PLAIN, raises(InternalError("no", rule="x", remedy="y"))),
    ("right call was refused", PLAIN, raises(ProblemError("no", rule="x", remedy="y"))),
    ("without a rule", PLAIN, raises(ProblemError("no"))),
    ("is np.float64", PLAIN, near(1e-4)),
    ("is np.float64", PLAIN, near(np.nan)),
    ("a list", PLAIN, lambda a, b: product(a, b).tolist()),
    ("holds float64", PLAIN, lambda a, b: product(a, b).astype(np.float64)),
    ("has shape", PLAIN, lambda a, b: product(a, b)[:2]),
    ("memory of an operand", Call("gemm", A, Array("float32", (4, 4), (16, 4))), lambda a, b: a),
    ("memory of a was changed", PLAIN, to_input),
    ("not out itself", Call("gemm", A, B, out=OUT), lambda a, b, out: product(a, b, out=out).copy()),
    ("memory of out was changed", Call("gemm", A, B, out=OUT), beside),
    ("memory of out was changed", Call("gemm", A, Array("float32", (9, 5), (20, 4)), out=OUT), half_written),
    ("inner sizes", Call("gemm", A, Array("float32", (9, 5), (20, 4))), lambda a, b: np.zeros((3, 5), np.float32)),
    ("shares memory", Call("gemm", A, Array("float32", (4, 4), (16, 4)), out=Same("a")), product),
    ("read-only", Call("gemm", A, B, out=Array("float32", (3, 5), (20, 4), writeable=False)), lambda a, b, out: out),
    ("alpha is True", Call("gemm", A, B, alpha="True"), product),
]


@pytest.mark.parametrize(("told", "call", "gemm"), PLANTED, ids=[f"{i}-{one[0]}" for i, one in enumerate(PLANTED)])
def test_what_is_planted_is_found(
    monkeypatch: pytest.MonkeyPatch, told: str, call: Call, gemm: Callable[..., Any]
) -> None:
    with pytest.raises(Wrong) as caught:
        run(monkeypatch, call, gemm)
    assert told in str(caught.value), str(caught.value)


def test_a_recipe_can_be_printed_and_made_again() -> None:
    call = Call("gemm", A, B, out=Same("a"), context=("strict",))
    names = {"Call": Call, "Array": Array, "Same": Same}
    assert eval(repr(call), names) == call
