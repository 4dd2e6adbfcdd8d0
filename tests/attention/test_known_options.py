"""Options that a call was made with before are not read again: equal ones of other types are, and so are operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ProblemError
from tilewright.ops.attention.legality import problem_check
from tilewright.runtime.bindings.attention import calls


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    calls._attributes.clear()
    yield
    calls._attributes.clear()


def operands(rows: int) -> list[Any]:
    return [np.full((1, rows, 2, 32), value, np.float32) for value in (0.5, 0.25, 2.0)]


def test_a_new_size_with_known_options_is_the_same_call() -> None:
    generator = np.random.default_rng(11)
    options: dict[str, Any] = {"causal": True, "return_lse": True, "window": (5, 0)}
    tw.attention(*operands(4), **options)
    assert len(calls._attributes) == 1
    q, k, v = (generator.standard_normal((2, 9, 3, 16), np.float32) for _ in range(3))
    by_memory = tw.attention(q, k, v, **options)
    assert len(calls._attributes) == 1
    calls._attributes.clear()
    read_anew = tw.attention(q[:1], k[:1], v[:1], **options)
    for one, other in zip(by_memory, read_anew, strict=True):
        np.testing.assert_array_equal(one[:1], other)


@pytest.mark.parametrize(
    ("known", "equal", "rule"),
    [
        ({"window": (8, 0)}, {"window": (8.0, 0)}, "attention-number"),
        ({"max_seqlen_q": None, "num_splits": 1}, {"num_splits": True}, ""),
        ({"causal": True}, {"causal": 1.0}, "causal"),
        ({"return_lse": False}, {"return_lse": 0.0}, ""),
    ],
)
def test_equal_options_of_another_type_are_read(known: dict[str, Any], equal: dict[str, Any], rule: str) -> None:
    """What they mean, or that they mean nothing, does not depend on the calls before."""
    first = outcome(equal, 3)
    tw.attention(*operands(4), **known)
    assert outcome(equal, 5) == first
    assert not rule or first[0] == "error", first


def outcome(options: dict[str, Any], rows: int) -> tuple[str, str]:
    try:
        tw.attention(*operands(rows), **options)
    except ProblemError as error:
        return "error", error.rule
    return "result", ""


def test_an_operand_that_is_no_array_is_named_as_ever() -> None:
    q, k, v = operands(3)
    with pytest.raises(ProblemError) as first:
        tw.attention(q, k.tolist(), v)
    tw.attention(q, k, v)
    with pytest.raises(ProblemError) as again:
        tw.attention(q, k.tolist(), v)
    assert (again.value.rule, again.value.message, again.value.remedy) == (
        first.value.rule, first.value.message, first.value.remedy
    )  # fmt: skip


def test_a_table_of_pages_is_part_of_what_is_known() -> None:
    q, k, v = operands(7)
    plain = tw.attention(q, k, v)
    paged = tw.attention(q, k, v, block_table=np.zeros((1, 1), np.int32), seqlens_k=np.array([7], np.int32))
    np.testing.assert_allclose(paged, plain, rtol=1e-6)
    assert sorted(in_pages for _, _, in_pages in calls._attributes) == [False, True]


def test_signatures_that_are_equal_have_one_answer() -> None:
    """Answers are found by the identity of a signature: another object of the same value gets the same."""
    problem = tw.AttentionProblem(1, 2, 3, 4, 32, dtype_q="fp8_e4m3fnuz")
    before = problem_check(problem, "generic")
    assert before
    assert problem_check(tw.AttentionProblem(1, 2, 5, 4, 32, dtype_q="fp8_e4m3fnuz"), "generic") == before
    assert not problem_check(tw.AttentionProblem(1, 2, 5, 4, 32), "generic")
