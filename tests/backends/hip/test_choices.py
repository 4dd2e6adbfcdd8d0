"""What problems drawn by seed go to on every AMD GPU: a matrix kernel, or another for a reason.

CATALOG_SEED draws others, `python -m tests.amd_emulated.choices SEED COUNT` more: this test does not fail by chance.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.amd_emulated import choices as drawing
from tests.amd_emulated.choices import OPS, choices, reason
from tilewright.ops.gemm import GemmProblem

SEED = int(os.environ.get("CATALOG_SEED") or 18112026)
DRAWN = 6  # of an op and arch


@pytest.mark.parametrize("name", OPS)
def test_a_drawn_problem_has_a_matrix_kernel_wherever_there_is_an_instruction(name: str) -> None:
    left = [
        f"{one.arch} {one.problem.describe()}: {one.spec.name}"
        for one in choices(SEED, DRAWN, (name,))
        if one.spec is not None and not one.multiplied and not reason(one)
    ]
    assert not left, f"seed {SEED}:\n" + "\n".join(left)


@pytest.mark.parametrize("name", OPS)
def test_nothing_drawn_is_refused_but_packed_operands(name: str) -> None:
    """A packed B has no fallback: only the kernel that it was packed for knows its layout."""
    refused = [one for one in choices(SEED, DRAWN, (name,)) if one.spec is None]
    assert all(getattr(one.problem, "preshuffled", False) for one in refused), f"seed {SEED}"


def test_a_packed_operand_that_a_rule_refuses_is_a_choice_of_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Any] = {f"dtype_{name}": "fp32" for name in "abcd"}
    packed = GemmProblem(m=56, n=168, k=64, layout="rcr", preshuffled=True, **kinds)
    monkeypatch.setattr(drawing, "drawn", lambda *_: packed)
    assert [one.spec for one in choices(0, 1, ("gemm",), ("gfx1100",))] == [None]
