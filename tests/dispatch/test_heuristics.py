"""A user's own heuristic: it chooses among the kernels that serve a problem, before rules, records and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dispatch import heuristics
from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec

PROBLEM = tw.GemmProblem(m=64, n=48, k=32)


def last_of_all(kernels: Sequence[KernelSpec], problem: Any) -> KernelSpec | None:
    return max(kernels, key=lambda spec: spec.digest)


def test_it_chooses_of_the_kernels_that_serve_and_explain_names_it() -> None:
    registry = tw.Registry(heuristic=last_of_all)
    chosen = registry.select_stage(PROBLEM)
    assert chosen.spec == max(registry.candidates(PROBLEM), key=lambda spec: spec.digest)
    assert (chosen.tier, chosen.by) == ("heuristic", "last_of_all")
    assert "the heuristic last_of_all chose it" in registry.explain(PROBLEM).full()
    a, b = np.ones((64, 32), np.float32), np.ones((32, 48), np.float32)
    np.testing.assert_array_equal(registry.run("gemm", a, b), 32)


def test_it_is_shown_kernels_that_serve_only_and_may_have_nothing_to_say() -> None:
    shown: list[KernelSpec] = []

    def nothing(kernels: Sequence[KernelSpec], problem: Any) -> None:
        shown.extend(kernels)

    registry = tw.Registry(heuristic=nothing)
    assert registry.select(PROBLEM) == tw.Registry().select(PROBLEM)
    assert tuple(shown) == registry.candidates(PROBLEM)


def test_one_for_the_process_counts_until_its_block_ends() -> None:
    plain = tw.explain(PROBLEM).selection
    with tw.use_heuristic(last_of_all):
        chosen = tw.explain(PROBLEM).selection
        assert chosen is not None
        assert getattr(chosen, "by", "") == "last_of_all"
    assert heuristics.current() is None
    assert tw.explain(PROBLEM).selection == plain


def test_a_registrys_own_stands_before_that_of_the_process() -> None:
    def never(kernels: Sequence[KernelSpec], problem: Any) -> None:
        raise AssertionError("the registry has its own")

    with tw.use_heuristic(never):
        assert getattr(tw.Registry(heuristic=last_of_all).select(PROBLEM), "by", "") == "last_of_all"


def test_answers_and_functions_that_are_none_are_refused() -> None:
    other = tw.Registry().select(tw.GemmProblem(m=8, n=8, k=8, layout="ccr")).stages[0].spec
    with pytest.raises(RequestError, match="none of the kernels") as caught:
        tw.Registry(heuristic=lambda kernels, problem: other).select(PROBLEM)
    assert caught.value.rule == "heuristic-choice"
    with pytest.raises(RequestError, match="heuristic is 3"):
        tw.Registry(heuristic=3)  # type: ignore[arg-type]


def test_candidates_are_those_that_serve() -> None:
    registry = tw.Registry()
    row = tw.GemmProblem(m=9, n=9, k=3)
    serving, every = registry.candidates(row), registry.candidates(row, serving=False)
    op = tw.GemmProblem.op
    from tilewright import ops

    assert set(serving) <= set(every)
    assert all(not ops.op(op).supports(spec, row) for spec in serving)
    assert {spec.digest for spec in every} - {spec.digest for spec in serving} == {
        spec.digest for spec in every if ops.op(op).supports(spec, row)
    }
