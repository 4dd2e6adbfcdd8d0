"""Calls that go from a public function's arguments to C: what is remembered of them, and what sends them to Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import settings
from tilewright.errors import TilewrightError
from tilewright.runtime import calls, fast_path

RANDOM = np.random.default_rng(20261117)
# As Python 3.11 calls, and as C calls a function (`partial`), which is how all versions but that one do.
WAYS: dict[str, Callable[..., Any]] = {
    "plain": lambda function, *given, **named: function(*given, **named),
    "from C": lambda function, *given, **named: partial(function, *given, **named)(),
}


def random(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


class Watch:
    """How many calls fronts made, and how many came to Python's attempt, since it was asked last."""

    def __init__(self, native: Any) -> None:
        self._native, self.attempts = native, 0
        self._hits = native.front_hits()

    def hits(self) -> int:
        before, self._hits = self._hits, self._native.front_hits()
        return int(self._hits - before)


@pytest.fixture
def watch() -> Iterator[Watch]:
    native = fast_path.library()
    if native is None:
        pytest.skip("there is no library of the fast path here")
    fast_path.forget()
    with settings.override(threads=1):
        yield Watch(native)
    fast_path.forget()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


def warm(way: Callable[..., Any], function: Any, *given: Any, **named: Any) -> None:
    """Planned, made by C for Python, and remembered."""
    for _ in range(2):
        way(function, *given, **named)


def test_the_third_call_is_the_fronts(watch: Watch, way: Callable[..., Any]) -> None:
    a, b = random(5, 7), random(7, 3)
    warm(way, tw.gemm, a, b)
    watch.hits()
    assert np.allclose(way(tw.gemm, a, b), a @ b, atol=1e-5)
    assert watch.hits() == 1
    other, more = random(5, 7), random(7, 3)  # other arrays of the same shapes
    assert np.allclose(way(tw.gemm, other, more), other @ more, atol=1e-5)
    assert watch.hits() == 1


def test_everything_a_call_may_differ_in_is_looked_at(watch: Watch, way: Callable[..., Any]) -> None:
    a, b, c = random(4, 6), random(6, 5), random(4, 5)
    bias, residual = random(5), random(4, 5)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, a @ b),
        ({"alpha": 2.0}, 2 * (a @ b)),
        ({"alpha": 3}, 3 * (a @ b)),
        ({"c": c}, a @ b + c),
        ({"c": c, "beta": 0.5}, a @ b + 0.5 * c),
        ({"bias": bias}, a @ b + bias),
        ({"residual": residual}, a @ b + residual),
        ({"bias": bias, "residual": residual}, a @ b + bias + residual),
        ({"bias": bias, "epilogue": "relu"}, np.maximum(a @ b + bias, 0)),
        ({"epilogue": "relu"}, np.maximum(a @ b, 0)),
        ({"out_dtype": np.float32, "alpha": -1.0}, -(a @ b)),
    ]
    for named, _ in cases:
        warm(way, tw.gemm, a, b, **named)
    watch.hits()
    for named, expected in [*cases, *reversed(cases)]:
        assert np.allclose(way(tw.gemm, a, b, **named), expected, atol=1e-5), named
    assert watch.hits() == 2 * len(cases)
    turned = np.ascontiguousarray(b.T).T  # other strides, the same shape
    assert np.allclose(way(tw.gemm, a, turned), a @ b, atol=1e-5)
    assert watch.hits() == 0


def test_operands_that_are_one_object_are_told_apart(watch: Watch, way: Callable[..., Any]) -> None:
    """A call with k and v the same says nothing wrong of the next, where they are not."""
    q, k, v = random(1, 3, 2, 16), random(1, 3, 2, 16), random(1, 3, 2, 16)
    expected = tw.attention(q, k, v)
    fast_path.forget()
    warm(way, tw.attention, q, k, k)
    watch.hits()
    assert np.array_equal(way(tw.attention, q, k, v), expected)
    assert watch.hits() == 1
    square = random(4, 4)
    warm(way, tw.gemm, square, square, bias=square[0], residual=square)
    left, right, added, more = random(4, 4), random(4, 4), random(4), random(4, 4)
    got = way(tw.gemm, left, right, bias=added, residual=more)
    assert np.allclose(got, left @ right + added + more, atol=1e-5)


def test_what_is_written_is_checked_each_time(watch: Watch, way: Callable[..., Any]) -> None:
    a, b, out = random(4, 4), random(4, 4), random(4, 4)
    warm(way, tw.gemm, a, b, out=out)
    watch.hits()
    assert way(tw.gemm, a, b, out=out) is out
    assert watch.hits() == 1
    with pytest.raises(TilewrightError) as error:
        way(tw.gemm, a, b, out=a)
    assert error.value.rule == "out-overlaps"
    fixed = out.copy()
    fixed.flags.writeable = False
    with pytest.raises(TilewrightError) as error:
        way(tw.gemm, a, b, out=fixed)
    assert error.value.rule == "out-read-only"


def test_settings_and_records_change_what_is_remembered(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random(6, 6), random(6, 6)
    way = WAYS["from C"]
    warm(way, tw.gemm, a, b)
    watch.hits()
    seen: list[int] = []
    attempt = calls.Caller.attempt

    def counted(*given: Any) -> Any:
        seen.append(1)
        return attempt(*given)

    monkeypatch.setattr(calls.Caller, "attempt", counted)
    way(tw.gemm, a, b)
    assert not seen
    with settings.override(threads=2):
        way(tw.gemm, a, b)  # other settings, other plans
    assert len(seen) == 1
    way(tw.gemm, a, b)
    assert len(seen) == 1
    with settings.override(threads=1):  # equal to those in force, and not the same
        way(tw.gemm, a, b)
        way(tw.gemm, a, b)
    assert len(seen) == 2
    fast_path.forget()
    way(tw.gemm, a, b)
    assert len(seen) == 3


def test_arguments_python_must_see_are_pythons(watch: Watch, way: Callable[..., Any]) -> None:
    a, b, d = random(4, 4), random(4, 4), random(4, 4)
    for named in ({"copy": "allow"}, {"ds": (d,), "epilogue": "MultiDAdd"}, {"alpha": np.float32(2)}):
        for _ in range(3):
            way(tw.gemm, a, b, **named)
    assert watch.hits() == 0
    for wrong in ({"gamma": 1}, {"c": d, "out": 3}):
        with pytest.raises((TypeError, TilewrightError)):
            way(tw.gemm, a, b, **wrong)
    with pytest.raises(TypeError):
        way(tw.gemm, a, b, a=a)
    with pytest.raises(TypeError):
        way(tw.gemm, a)
    with pytest.raises(TypeError):
        way(tw.gemm, a, b, d, 1.0)
    assert tw.matmul(a[0], b[0]).shape == ()  # of two vectors NumPy gives a number, each time
    for _ in range(4):
        assert isinstance(way(tw.matmul, a[0], b[0]), np.floating)


def test_a_function_stays_the_function_it_is() -> None:
    tw.gemm(random(2, 2), random(2, 2))
    import inspect

    assert inspect.isfunction(tw.gemm)
    assert "alpha" in inspect.signature(tw.gemm).parameters
    assert (tw.gemm.__doc__ or "").startswith("E = epilogue")


def test_many_sizes_are_forgotten_and_made_again(watch: Watch) -> None:
    way, a = WAYS["from C"], random(70, 70)
    for _ in range(2):
        for size in range(1, 70):
            for _ in range(3):
                assert np.allclose(way(tw.gemm, a[:size, :3], a[:3, :size]), a[:size, :3] @ a[:3, :size], atol=1e-5)
        fast_path.forget()


def test_threads_share_what_is_remembered(watch: Watch) -> None:
    a, b = random(9, 8), random(8, 7)
    expected = tw.gemm(a, b)
    wrong: list[Any] = []

    def run() -> None:
        with settings.override(threads=1):
            for turn in range(300):
                if turn % 50 == 0:
                    fast_path.forget()
                if not np.array_equal(WAYS["from C"](tw.gemm, a, b), expected):
                    wrong.append(turn)

    workers = [threading.Thread(target=run) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not wrong
