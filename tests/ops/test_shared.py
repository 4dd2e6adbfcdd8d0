"""What ops share: an op that is not GEMM has pools, named sets, an error bound and a verdict without copying any."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright.ops
from tilewright.arch import Arch
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.fused import EPILOGUES, epilogue_violations
from tilewright.ops.numerics import (
    Comparison,
    after_activation,
    after_rounding,
    compare,
    gamma,
    narrow_part,
    sampled_rows,
)
from tilewright.ops.pooling import SWEPT, Pools


@dataclass(frozen=True)
class Axpy:
    dtype: str

    def label(self) -> str:
        return self.dtype


@dataclass(frozen=True)
class Lanes:
    lanes: int

    def label(self) -> str:
        return str(self.lanes)


@dataclass(frozen=True)
class Wide:
    name: str = "wide"
    family: str = "cpu"
    purpose: str = "long vectors"

    def signatures(self, arch: Arch) -> tuple[Axpy, ...]:
        return (Axpy("fp32"), Axpy("bf16"))

    def schedules(self, signature: Axpy, arch: Arch) -> tuple[Lanes, ...]:
        return (Lanes(16),)


class Cpu:
    SETS: ClassVar[dict[str, Wide]] = {"wide": Wide()}

    def schedules(self, pool: str, signature: Axpy, arch: Arch) -> Iterator[Lanes]:
        yield from (Lanes(one) for one in ((4, 8, 3) if pool == "default" else (4,)))

    def fallback_schedule(self, signature: Axpy, arch: Arch) -> Lanes:
        return Lanes(1)

    def signature_rules(self, signature: Axpy, arch: Arch) -> Iterator[Violation]:
        return iter(())


def odd(spec: KernelSpec) -> list[Violation]:
    return [Violation("odd", "lanes are odd")] if spec.schedule.lanes % 2 and spec.schedule.lanes > 1 else []


POOLS = Pools("axpy", {"cpu": Cpu()}, odd)


def test_pools_of_another_op() -> None:
    found = POOLS.proposals("default", "generic", [Axpy("fp32")])
    assert [one.schedule.lanes for one in found] == [4, 8, 3]
    legal = POOLS.candidates(Axpy("fp32"), "generic")
    assert [one.schedule.lanes for one in legal] == [4, 8]
    assert POOLS.candidates(Axpy("fp32"), "generic") is legal
    assert POOLS.fallback_spec(Axpy("fp32"), "generic").schedule == Lanes(1)
    assert [one.signature.dtype for one in POOLS.preselected("wide", "generic")] == ["fp32", "bf16"]
    assert set(SWEPT) < set(POOLS.names)


@pytest.mark.parametrize(
    ("ask", "error", "rule"),
    [
        (lambda: POOLS.proposals("defalt", "generic", []), UnknownNameError, "pool-name"),
        (lambda: POOLS.proposals("default", "gfx942", []), RequestError, "family"),
        (lambda: POOLS.preselected("wyde", "generic"), UnknownNameError, "preselected-name"),
        (lambda: POOLS.preselected("wide", "gfx942"), RequestError, "preselected-family"),
    ],
)
def test_mistakes_are_named_before_the_first_proposal(ask: Any, error: type[Exception], rule: str) -> None:
    with pytest.raises(error) as caught:
        ask()
    assert caught.value.rule == rule  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_results_of_any_rank_are_compared(shape: tuple[int, ...], dtype: str) -> None:
    value = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    bound = np.full(shape, 0.25)
    right = value.astype(np.int8 if dtype == "int8" else np.float32)
    assert compare(right, value, bound, dtype).ok
    wrong = right.copy().ravel()
    wrong[3] += 1
    found = compare(wrong.reshape(shape), value, bound, dtype)
    assert not found.ok
    assert f"1 of {value.size} elements are wrong" in found.detail


def test_nothing_but_the_same_nan_and_infinity_will_do() -> None:
    value = np.array([np.nan, np.inf, -np.inf, 1.0])
    bound = np.full(4, 0.5)
    assert compare(value.astype(np.float32), value, bound, "fp32").ok
    for place in range(4):
        for other in (np.nan, np.inf, -np.inf, 3.0):
            wrong = value.copy()
            wrong[place] = other
            same = np.array_equal(wrong, value, equal_nan=True)
            assert compare(wrong.astype(np.float32), value, bound, "fp32").ok == same


def test_a_shape_that_cannot_be_is_no_crash() -> None:
    assert "shape" in compare(np.zeros((2, 3)), np.zeros((4, 3)), np.zeros((4, 3)), "fp32").detail
    assert compare(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)), "fp32").ok


@pytest.mark.parametrize("shape", [(3, 40_001), (70_000,), (900, 3, 70), (5, 7)])
def test_one_wrong_element_is_found_wherever_it_is(shape: tuple[int, ...]) -> None:
    """Results are looked at in parts; none is left out, and all of them count for what is told."""
    draw = np.random.default_rng(5)
    value = draw.standard_normal(shape)
    judged = Comparison(value, np.full(shape, 1e-3), "fp32")
    right = (value + draw.uniform(-9e-4, 9e-4, shape)).astype(np.float32)
    found = judged(right)
    assert found.ok
    apart = np.abs(right.astype(np.float64) - value)
    assert found.max_error == apart.max()
    assert found.bound_ratio == pytest.approx(apart.max() / 1e-3)
    for at in (0, value.size // 2, value.size - 1, *draw.integers(0, value.size, 5).tolist()):
        for wrong in (float(value.flat[at]) + 2e-3, np.nan, np.inf):
            result = right.copy()
            result.flat[at] = wrong
            told = judged(result)
            assert not told.ok
            assert "1 of" in told.detail


def test_pieces_of_bounds_grow_as_they_should() -> None:
    assert 0 < gamma(10) < gamma(1000) < 1
    assert 0 < narrow_part(32) < narrow_part(1024)
    error = np.array([1e-3])
    assert after_activation("Sigmoid", np.array([0.0]), error) < error
    assert after_rounding("bf16", np.array([1.0]), error) > after_rounding("fp32", np.array([1.0]), error) > error


def test_sampled_rows_hold_both_ends_of_any_count() -> None:
    assert sampled_rows(10, 1e30, 1.0) == slice(None)
    some = sampled_rows(70, 1e30, 1.0)
    assert isinstance(some, np.ndarray)
    assert {0, 15, 69} <= set(some.tolist())
    assert some.max() < 70


def test_an_epilogue_that_is_not_known_names_the_nearest() -> None:
    (one,) = epilogue_violations("Rellu", 0)
    assert (one.rule, "'Relu'" in one.remedy) == ("epilogue-name", True)
    assert not [bad for name in EPILOGUES for bad in epilogue_violations(name, 1) if name != "PassThrough"]


def test_shared_modules_know_no_op() -> None:
    folder = Path(tilewright.ops.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("tilewright.ops.gemm"), path


def test_a_verdict_writes_plain_numbers() -> None:
    check = compare(np.array([1.0, 2.5], np.float32), np.array([1.0, 2.0]), np.array([0.1, 0.1]), "fp32")
    assert not check.ok
    assert "element (1,) is 2.5, expected 2.0 within 0.1" in check.detail
